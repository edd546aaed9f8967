// The commands of README.md do what it shows. In its ```console blocks a line "$ COMMAND" is run and the lines below it
// are what it prints, standard error included. A line "..." stands for any lines, "..." at a line's end for its rest.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace {

using Lines = std::vector<std::string>;

struct Example {
  int line = 0;  // of README.md
  std::string command;
  Lines output;
};

std::vector<Example> ReadExamples(std::istream& readme) {
  std::vector<Example> examples;
  std::string text;
  bool inside = false;
  for (int line = 1; std::getline(readme, text); ++line) {
    if (text.starts_with("```")) {
      inside = text == "```console";
    } else if (inside && text.starts_with("$ ")) {
      examples.push_back({line, text.substr(2), {}});
    } else if (inside && !examples.empty()) {
      examples.back().output.push_back(text);
    }
  }
  return examples;
}

Lines OutputOf(const std::string& command) {
  FILE* pipe = popen(("{ " + command + "; } 2>&1").c_str(), "r");
  if (!pipe) return {"popen failed"};
  std::string output;
  char bytes[4096];
  for (size_t count; (count = fread(bytes, 1, sizeof(bytes), pipe)) > 0;) output.append(bytes, count);
  pclose(pipe);
  std::istringstream stream(output);
  Lines lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

bool LineMatches(std::string_view shown, std::string_view printed) {
  return shown.ends_with("...") ? printed.starts_with(shown.substr(0, shown.size() - 3)) : shown == printed;
}

// The lines from shown[s] on are those from printed[p] on.
bool Matches(const Lines& shown, const Lines& printed, size_t s = 0, size_t p = 0) {
  for (; s < shown.size(); ++s, ++p) {
    if (shown[s] == "...") {
      while (p < printed.size() && !Matches(shown, printed, s + 1, p)) ++p;
      return Matches(shown, printed, s + 1, p);
    }
    if (p == printed.size() || !LineMatches(shown[s], printed[p])) return false;
  }
  return p == printed.size();
}

std::string Joined(const Lines& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

TEST(Readme, MatchesKnowsItsDots) {
  EXPECT_TRUE(Matches({"a", "b"}, {"a", "b"}));
  EXPECT_FALSE(Matches({"a"}, {"a", "b"}));
  EXPECT_FALSE(Matches({"a", "b"}, {"a"}));
  EXPECT_TRUE(Matches({"...", "b"}, {"b"}));
  EXPECT_TRUE(Matches({"...", "b", "..."}, {"a", "b", "b", "c"}));
  EXPECT_FALSE(Matches({"...", "b"}, {"b", "c"}));
  EXPECT_TRUE(Matches({"a..."}, {"abc"}));
  EXPECT_FALSE(Matches({"b..."}, {"abc"}));
}

// Runs them one after the other in a folder that looks like the repository after `make build`.
TEST(Readme, CommandsPrintWhatItShows) {
  namespace fs = std::filesystem;
  std::ifstream readme(QUIRE_SOURCE_DIR "/README.md");
  const std::vector<Example> examples = ReadExamples(readme);
  ASSERT_FALSE(examples.empty());

  const fs::path folder = QUIRE_BINARY_DIR "/readme_test";
  fs::remove_all(folder);
  fs::create_directories(folder);
  fs::create_directory_symlink(QUIRE_BINARY_DIR, folder / "build");
  for (const char* name : {"samples", "models"})
    fs::create_directory_symlink(fs::path(QUIRE_SOURCE_DIR) / name, folder / name);
  fs::current_path(folder);
  for (const Example& example : examples) {
    const Lines printed = OutputOf(example.command);
    EXPECT_TRUE(Matches(example.output, printed))
        << "README.md:" << example.line << ": " << example.command << "\nshows:\n"
        << Joined(example.output) << "\nprinted:\n"
        << Joined(printed);
  }
}

}  // namespace
