// The program as a user meets it: command line in; standard output, standard error, files and exit code out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <regex>

#include "base/json.h"
#include "base/mmap_file.h"
#include "document/cer.h"
#include "tests/cli/run.h"

namespace quire {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

const std::string kSource = QUIRE_SOURCE_DIR;
const std::string kProgram = QUIRE_BINARY_DIR "/quire";
const std::string kModel = kSource + "/models/tiny";
const std::string kLine = kSource + "/samples/line.png";
const std::string kLineText = "fearsome beast,\n";

std::string Text(const std::string& path) {
  return ReadFile(path, 1 << 26);
}

void Write(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

// quire with the shipped model named, so that no note says that it was not.
RunResult Quire(std::vector<std::string> arguments, RunOptions options = {}) {
  arguments.insert(arguments.begin(), kProgram);
  options.environment.push_back("QUIRE_MODEL=" + kModel);
  return RunProgram(std::move(arguments), options);
}

std::vector<Json> Lines(const std::string& text) {
  std::vector<Json> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(Json::Parse(line, "line"));
  return lines;
}

// A page of grey pixels, uncompressed.
struct TiffPage {
  int side_px;
  bool broken;  // its pixels are said to lie beyond the file
};

std::string Tiff(const std::vector<TiffPage>& pages) {
  std::string file("II*\0\0\0\0\0", 8);
  size_t link = 4;
  const auto put = [&](size_t at, uint32_t value, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i) file[at + i] = static_cast<char>(value >> 8 * i);
  };
  for (const TiffPage& page : pages) {
    const auto side = static_cast<uint32_t>(page.side_px);
    const auto pixels = static_cast<uint32_t>(file.size());
    file.append(size_t{side} * side, '\xff');
    put(link, static_cast<uint32_t>(file.size()), 4);
    const std::pair<uint32_t, uint32_t> fields[] = {{256, side}, {257, side}, {258, 8},
                                                    {259, 1},    {262, 1},    {273, page.broken ? 0x7fffff00U : pixels},
                                                    {277, 1},    {278, side}, {279, side * side}};
    size_t at = file.size();
    file.append(2 + 12 * std::size(fields) + 4, '\0');
    put(at, std::size(fields), 2);
    at += 2;
    for (const auto& [tag, value] : fields) {
      put(at, tag, 2);
      put(at + 2, 4, 2);  // LONG
      put(at + 4, 1, 4);
      put(at + 8, value, 4);
      at += 12;
    }
    link = at;
  }
  return file;
}

class Cli : public testing::Test {
 protected:
  Cli() : folder_(fs::path(testing::TempDir()) / "quire_cli_test") {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~Cli() override { fs::remove_all(folder_); }

  std::string At(const std::string& name) const { return (folder_ / name).string(); }
  std::string Make(const std::string& name, const std::string& bytes) const {
    Write(folder_ / name, bytes);
    return At(name);
  }
  std::string CopyLine(const std::string& name) const { return Make(name, Text(kLine)); }

  // A copy of the model that may be damaged.
  std::string CopyModel() const {
    fs::remove_all(At("model"));
    fs::copy(kModel, At("model"));
    return At("model");
  }

  // As installed: the program, its model, and a decoder of the caller's.
  std::string Install(const std::string& decoder) const {
    fs::create_directories(At("installed/bin"));
    fs::create_directories(At("installed/share/quire/models"));
    fs::copy(kProgram, At("installed/bin/quire"), fs::copy_options::overwrite_existing);
    if (!fs::exists(At("installed/share/quire/models/tiny")))
      fs::create_directory_symlink(kModel, At("installed/share/quire/models/tiny"));
    Make("installed/bin/quire-decode", decoder);
    fs::permissions(At("installed/bin/quire-decode"), fs::perms::owner_all);
    return At("installed/bin/quire");
  }

  fs::path folder_;
};

TEST_F(Cli, SaysItsVersionAndHelp) {
  const RunResult version = Quire({"--version"});
  EXPECT_EQ(version.code, 0);
  EXPECT_TRUE(std::regex_match(version.out, std::regex("quire \\d+\\.\\d+\\.\\d+\n"))) << version.out;
  for (const std::vector<std::string>& command : {std::vector<std::string>{}, {"read"}, {"inspect"}}) {
    std::vector<std::string> arguments = command;
    arguments.emplace_back("--help");
    const RunResult help = Quire(arguments);
    EXPECT_EQ(help.code, 0);
    EXPECT_THAT(help.err, IsEmpty());
    EXPECT_THAT(help.out, HasSubstr("Usage: quire" + (command.empty() ? "" : " " + command[0])));
    std::istringstream lines(help.out);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 120) << line;
  }
  EXPECT_THAT(Quire({"read", "--help"}).out, AllOf(HasSubstr("TIFF"), HasSubstr("Examples:"), HasSubstr("Exit code:")));
}

TEST_F(Cli, WrongUse) {
  struct Case {
    std::vector<std::string> arguments;
    std::string said;
  };
  const std::vector<Case> cases = {
      {{}, "Usage: quire"},
      {{"nonsense"}, "there is no command nonsense"},
      {{"page.png"}, "quire read FILE reads a picture"},
      {{"--nonsense"}, "there is no option --nonsense"},
      {{"read"}, "INPUT is required"},
      {{"read", "--nonsense=3", kLine}, "there is no option --nonsense=3"},
      {{"read", "-dash.png"}, "a file of that name is ./-dash.png"},
      {{"read", ""}, "wanted the name of a picture, found an empty one"},
      {{"read", "-", "-"}, "found it 2 times"},
      {{"read", kLine, "-o"}, "--output"},
      {{"read", kLine, "-o", ""}, "found an empty name"},
      {{"read", kLine, "--json", "--raw"}, "excludes"},
      {{"read", kLine, "--dry-run", "--stats"}, "excludes"},
      {{"read", kLine, "--prompt", "x", "--task", "plain"}, "excludes"},
      {{"read", kLine, "--threads", "x"}, "--threads: wanted a whole number from 0 to 1024, found \"x\""},
      {{"read", kLine, "--threads", "2000"}, "found \"2000\""},
      {{"read", kLine, "--max-tokens", "-1"}, "--max-tokens: wanted a whole number from 0"},
      {{"read", kLine, "--max-tokens", "99999999999999"}, "found \"99999999999999\""},
      {{"read", kLine, "--ngram-size", "-1"}, "--ngram-size: wanted"},
      {{"read", kLine, "--seed", "-1"}, "--seed: wanted a whole number of at least 0"},
      {{"read", kLine, "--temperature", "nan"}, "--temperature: wanted a number from 0 to 100"},
      {{"read", kLine, "--top-p", "1.5"}, "--top-p: wanted a number from 0 to 1"},
      {{"read", kLine, "--timeout", "1e300"}, "--timeout: wanted a number from 0 to 10000000"},
      {{"read", kLine, "--max-pixels", "0"}, "--max-pixels: wanted a whole number from 1"},
      {{"read", kLine, "--task", "figure"}, "its tasks: document, plain"},
      {{"read", kLine, "--text", "x"}, "takes no text"},
      {{"read", kLine, "--prompt", "<image><image>"}, "found 2"},
      {{"read", kLine, "--mode", "nonsense"}, "its modes: strips, gundam, base, small"},
      {{"read", kLine, "--mode", "gundam", "--max-tiles", "1"}, "wanted 2 to 6 tiles"},
      {{"read", kLine, "--mode", "base", "--max-tiles", "3"}, "mode base has no tiles"},
      {{"read", kLine, "--guard", "nonsense"}, "one of model, official-pdf, official-eval, hf, off"},
      {{"read", kLine, "--dtype", "nonsense"}, "one of auto, bf16, f32"},
      {{"read", kLine, "--device", "nonsense"}, "this build has: auto"},
      {{"inspect", kModel, "more"}, "one argument too many: more"},
  };
  for (const Case& wrong : cases) {
    SCOPED_TRACE(testing::PrintToString(wrong.arguments));
    const RunResult run = Quire(wrong.arguments);
    EXPECT_EQ(run.code, 2);
    EXPECT_THAT(run.out, IsEmpty());
    EXPECT_THAT(run.err, HasSubstr(wrong.said));
    EXPECT_THAT(run.err, Not(HasSubstr("bug")));
  }
  EXPECT_THAT(Quire({"read", "-"}, {.keep_input_open = true, .input_is_terminal = true}).err,
              HasSubstr("found a terminal"));
  EXPECT_EQ(Quire({"read", kLine}, {.environment = {"QUIRE_THREADS=x"}}).code, 2);
  const RunResult long_prompt = Quire({"read", kLine, "--prompt", std::string(60000, 'a')});
  EXPECT_EQ(long_prompt.code, 6);
  EXPECT_THAT(long_prompt.err, HasSubstr("wanted a prompt of less than 8192 tokens with a page"));
}

TEST_F(Cli, ReadsALine) {
  const RunResult run = Quire({"read", kLine});
  EXPECT_EQ(run.code, 0);
  EXPECT_EQ(run.out, kLineText);
  EXPECT_THAT(run.err, IsEmpty());  // no terminal, no progress
}

TEST_F(Cli, ReadsUnderAnyName) {
  std::vector<std::string> arguments = {"read", "--"};
  for (const char* name : {"日本語 ページ.tif", "emoji 😀.tif", "new\nline\x1b[2J.tif", " blanks ", "-dash.tif"}) {
    Make(name, Tiff({{8, false}}));
    arguments.emplace_back(name);
  }
  const RunResult run = Quire(arguments, {.folder = folder_});
  EXPECT_EQ(run.code, 0);
  EXPECT_THAT(run.err, AllOf(HasSubstr("日本語 ページ.tif, page 1: blank: "), HasSubstr("-dash.tif, page 1: blank: ")));
  EXPECT_THAT(run.err, Not(HasSubstr("\x1b")));  // names do nothing to a terminal
}

TEST_F(Cli, ReadsTheSamples) {
  // The model takes one letter of the list for another.
  const std::pair<const char*, size_t> samples[] = {{"table", 0}, {"paragraph", 0}, {"headings-list", 3}};
  for (const auto& [name, errors] : samples) {
    SCOPED_TRACE(name);
    const std::string sample = kSource + "/samples/" + name;
    const RunResult run = Quire({"read", sample + ".png"});
    EXPECT_EQ(run.code, 0);
    EXPECT_THAT(run.err, IsEmpty());
    EXPECT_LE(CountCharacterErrors(Text(sample + ".txt"), run.out).errors, errors) << run.out;
  }
}

TEST_F(Cli, ReadsSmallPrintInStripsAndDoubtsItWhole) {
  const std::string sample = kSource + "/samples/a4-11pt";
  const RunResult strips = Quire({"read", sample + ".png"});
  EXPECT_EQ(strips.code, 0) << strips.err;
  EXPECT_LT(CountCharacterErrors(Text(sample + ".txt"), strips.out).rate(), 0.05) << strips.out;

  const RunResult whole = Quire({"read", "--mode", "gundam", sample + ".png"});
  EXPECT_EQ(whole.code, 1);
  EXPECT_THAT(whole.err, StartsWith("quire: " + sample + ".png, page 1: doubtful: "));
  EXPECT_THAT(whole.out, AllOf(HasSubstr("\n\n<!-- quire: doubtful: "), EndsWith(" -->\n")));
}

TEST_F(Cli, PlansNoStripsOfWhite) {
  // Two lines of eight letters, nine times as far apart as the page is wide.
  constexpr size_t kWidth = 200, kHeight = 2000;
  std::string pixels(kWidth * kHeight, '\xff');
  for (const size_t line : {20, 1960})
    for (size_t y = line; y < line + 12; ++y)
      for (size_t x = 20; x < 180; x += 20) pixels.replace(y * kWidth + x, 8, 8, '\0');
  const std::string page = Make("page.pgm", "P5 200 2000 255\n" + pixels);
  const Json plan = Lines(Quire({"read", "--dry-run", page}).out).at(0);
  EXPECT_EQ(plan.At("parts").as_array().size(), 2U) << plan.Dump(1);
}

TEST_F(Cli, TextComesInPieces) {
  const RunResult run = Quire({"read", kSource + "/samples/paragraph.png"});
  EXPECT_EQ(run.code, 0);
  EXPECT_GT(run.pieces.size(), 10U);
  EXPECT_LT(run.pieces[0].size(), 40U);
}

// Names of the fields in the first table below a heading of docs/formats.md.
std::vector<std::string> DescribedFields(const std::string& heading) {
  const std::string formats = Text(kSource + "/docs/formats.md");
  const size_t table = formats.find("\n| `", formats.find(heading));
  std::istringstream lines(formats.substr(table + 1, formats.find("\n\n", table) - table));
  std::vector<std::string> fields;
  const std::regex name("`(\\w+)`");
  for (std::string line; std::getline(lines, line);) {
    const std::string cell = line.substr(1, line.find('|', 1) - 1);
    for (std::sregex_iterator it(cell.begin(), cell.end(), name), end; it != end; ++it) fields.push_back((*it)[1]);
  }
  return fields;
}

std::vector<std::string> Keys(const Json& object) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.as_object()) keys.push_back(key);
  return keys;
}

TEST_F(Cli, RecordsHoldAllThatFormatsDescribes) {
  const RunResult run = Quire({"read", "--json", kSource + "/samples/table.png", At("missing")});
  EXPECT_EQ(run.code, 1);
  const std::vector<Json> records = Lines(run.out);
  ASSERT_EQ(records.size(), 2U);
  for (const Json& record : records) EXPECT_EQ(Keys(record), DescribedFields("## Page record"));
  const Json& table = records[0];
  ASSERT_FALSE(table.At("blocks").as_array().empty());
  for (const Json& block : table.At("blocks").as_array()) EXPECT_EQ(Keys(block), DescribedFields("\nA block:"));
  EXPECT_EQ(table.At("status").as_string(), "ok");
  EXPECT_TRUE(table.At("error").is_null());
  for (const auto& [stage, ms] : table.At("times_ms").as_object()) {
    EXPECT_GE(ms.as_double(), 0) << stage;
    EXPECT_NEAR(ms.as_double() * 1000, std::round(ms.as_double() * 1000), 1e-3) << stage;
  }
  EXPECT_EQ(records[1].At("status").as_string(), "error");
  EXPECT_EQ(records[1].At("error").At("kind").as_string(), "not_found");
  EXPECT_THAT(records[1].At("reason").as_string(), Not(HasSubstr(At("missing"))));  // `source` names it
}

TEST_F(Cli, OneRecordForEachPage) {
  const std::string png = Text(kLine);
  fs::create_directory(At("folder"));
  mkfifo(At("pipe").c_str(), 0600);
  struct Page {
    std::string source;
    int page;
    std::string status, kind;
  };
  const std::vector<Page> pages = {
      {kLine, 1, "ok", ""},
      {At("missing.png"), 1, "error", "not_found"},
      {kLine + "/x", 1, "error", "not_found"},
      {Make("empty.png", ""), 1, "error", "bad_input"},
      {Make("cut.png", png.substr(0, png.size() / 2)), 1, "error", "bad_input"},
      {Make("header.png", png.substr(0, 20)), 1, "error", "bad_input"},
      {Make("garbage.png", std::string(5000, 'g')), 1, "error", "unsupported"},
      {Make("a.pdf", "%PDF-1.7\n"), 1, "error", "unsupported"},
      {At("folder"), 1, "error", "bad_input"},
      {At("pipe"), 1, "error", "bad_input"},
      {"/dev/zero", 1, "error", "bad_input"},
      {Make("pages.tif", Tiff({{8, false}, {8, true}, {8, false}})), 1, "blank", ""},
      {At("pages.tif"), 2, "error", "bad_input"},
      {At("pages.tif"), 3, "blank", ""},
      {Make("first.tif", Tiff({{8, true}, {8, false}})), 1, "error", "bad_input"},
      {At("first.tif"), 2, "blank", ""},
      {Make("large.tif", Tiff({{300, false}})), 1, "error", "too_large"},
      {Make("dot.tif", Tiff({{1, false}})), 1, "blank", ""},
      {"-", 1, "blank", ""},
  };
  std::vector<std::string> arguments = {"read", "--json", "--max-pixels", "70000"};
  for (const Page& page : pages)
    if (page.page == 1) arguments.push_back(page.source);
  const RunResult run = Quire(arguments, {.input = Tiff({{2, false}})});
  EXPECT_EQ(run.code, 1);
  const std::vector<Json> records = Lines(run.out);
  ASSERT_EQ(records.size(), pages.size()) << run.out << run.err;
  for (size_t i = 0; i < pages.size(); ++i) {
    SCOPED_TRACE(pages[i].source);
    EXPECT_EQ(records[i].At("source").as_string(), pages[i].source);
    EXPECT_EQ(records[i].At("page").as_int(), pages[i].page);
    EXPECT_EQ(records[i].At("status").as_string(), pages[i].status);
    if (!pages[i].kind.empty()) EXPECT_EQ(records[i].At("error").At("kind").as_string(), pages[i].kind);
  }
  EXPECT_THAT(run.err, HasSubstr("quire: " + At("pages.tif") + ", page 2: error: "));
  EXPECT_THAT(run.err, HasSubstr("quire: 13 of 19 pages failed\n"));
  EXPECT_EQ(Quire({"read", At("missing.png"), At("empty.png")}).code, 3);
}

TEST_F(Cli, CommentsNameThePagesOfOneStream) {
  const std::string pages = Make("pages.tif", Tiff({{8, false}, {8, true}, {8, false}}));
  const RunResult run = Quire({"read", kLine, pages});
  EXPECT_EQ(run.code, 1);
  EXPECT_TRUE(std::regex_match(run.out, std::regex(kLineText + "\n<!-- quire: \\S*pages.tif, page 1 -->\n"
                                                               "\n\n<!-- quire: \\S*pages.tif, page 2 -->\n"
                                                               "\n<!-- quire: error: .* -->\n"
                                                               "\n<!-- quire: \\S*pages.tif, page 3 -->\n\n")))
      << run.out;
}

TEST_F(Cli, WritesFiles) {
  const std::string line = CopyLine("a.png");
  EXPECT_EQ(Quire({"read", line, "-o", At("a.md")}).code, 0);
  EXPECT_EQ(Text(At("a.md")), kLineText);

  const std::string pages = Make("b.tif", Tiff({{8, false}, {8, false}}));
  const RunResult run = Quire({"read", line, pages, "-o", At("new/folder/")});
  EXPECT_EQ(run.code, 0);
  EXPECT_THAT(run.out, IsEmpty());
  EXPECT_EQ(Text(At("new/folder/a.png.md")), kLineText);
  EXPECT_EQ(Quire({"read", "--json", pages, "-o", At("new/folder")}).code, 0);
  EXPECT_EQ(Lines(Text(At("new/folder/b.tif.json"))).size(), 2U);
}

TEST_F(Cli, DestroysNothing) {
  const std::string line = CopyLine("a.png"), bytes = Text(line);
  fs::create_directory(At("other"));
  const std::string same_name = CopyLine("other/a.png");
  fs::create_hard_link(line, At("other/link.md"));
  for (const std::string& output : {line, At("other/../a.png"), At("other/link.md")}) {
    const RunResult run = Quire({"read", line, "-o", output});
    EXPECT_EQ(run.code, 2);
    EXPECT_THAT(run.err, HasSubstr("the result would be written over the picture " + line));
  }
  const RunResult two = Quire({"read", line, same_name, "-o", At("out/")});
  EXPECT_EQ(two.code, 2);
  EXPECT_THAT(two.err, HasSubstr("two pictures would be written to this file: " + line + " and " + same_name));
  EXPECT_FALSE(fs::exists(At("out")));
  EXPECT_EQ(Text(line), bytes);
}

TEST_F(Cli, SaysWhatCannotBeWritten) {
  const std::string blank = Make("blank.tif", Tiff({{8, false}}));
  const RunResult no_folder = Quire({"read", blank, "-o", At("missing/a.md")});
  EXPECT_EQ(no_folder.code, 10);
  EXPECT_THAT(no_folder.err, AllOf(HasSubstr(At("missing/a.md")), HasSubstr("make its folder first")));
  EXPECT_EQ(Quire({"read", blank, "-o", blank + "/"}).code, 10);
  const RunResult full = Quire({"read", "--json", blank, "-o", "/dev/full"});
  EXPECT_EQ(full.code, 10);
  EXPECT_THAT(full.err, HasSubstr("/dev/full: cannot be written: No space left"));
  EXPECT_EQ(Quire({"read", "--json", blank}, {.closed = {1}}).code, 10);
}

TEST_F(Cli, ClosedStreamsTakeNoText) {
  const RunResult run = Quire({"read", kLine, "-o", At("a.md")}, {.closed = {0, 1, 2}});
  EXPECT_EQ(run.code, 0);
  EXPECT_EQ(Text(At("a.md")), kLineText);  // and nothing that standard error would have got
}

TEST_F(Cli, EndsSilentlyWhenNobodyReads) {
  const std::string command = "set -o pipefail; \"$0\" read --json \"$1\" \"$2\" | head -c 1";
  const RunResult run = RunProgram({"bash", "-c", command, kProgram, Make("blank.tif", Tiff({{8, false}})), kLine},
                                   {.environment = {"QUIRE_MODEL=" + kModel}});
  EXPECT_EQ(run.code, 128 + SIGPIPE);
  EXPECT_EQ(run.out, "{");
  EXPECT_THAT(run.err, Not(HasSubstr("error")));
}

TEST_F(Cli, ReadsStandardInput) {
  const RunResult run = Quire({"read", "-"}, {.input = Text(kLine)});
  EXPECT_EQ(run.code, 0);
  EXPECT_EQ(run.out, kLineText);
  EXPECT_EQ(Quire({"read", "-"}).code, 3);  // empty
}

TEST_F(Cli, InterruptEndsThePage) {
  bool sent = false;
  const auto interrupt = [&](const std::string&, int pid) {
    if (!std::exchange(sent, true)) kill(pid, SIGINT);
  };
  const std::string sample = kSource + "/samples/a4-11pt.png";
  const RunResult run = Quire({"read", "--raw", sample, kLine}, {.on_output = interrupt});
  EXPECT_EQ(run.code, 130);
  EXPECT_THAT(run.err, HasSubstr("page 1: error: canceled"));
  EXPECT_THAT(run.out, AllOf(Not(IsEmpty()), EndsWith("\n<!-- quire: error: canceled -->\n")));
  EXPECT_LT(run.out.size(), Text(kSource + "/samples/a4-11pt.txt").size());
}

TEST_F(Cli, InterruptEndsTheWaitForInput) {
  const std::string blank = Make("blank.tif", Tiff({{8, false}}));
  const auto interrupt = [](const std::string&, int pid) { kill(pid, SIGINT); };
  const RunResult run = Quire({"read", "--json", blank, "-"},
                              {.keep_input_open = true, .on_output = interrupt, .patience = std::chrono::seconds(20)});
  EXPECT_EQ(run.code, 130);
}

TEST_F(Cli, ShowsProgressOnlyOnATerminal) {
  const RunResult run = Quire({"read", kLine, "-o", At("a.md")}, {.error_is_terminal = true});
  EXPECT_EQ(run.code, 0);
  EXPECT_THAT(run.err,
              AllOf(HasSubstr("\r"), HasSubstr("line.png, page 1: looked at view 1 of 1"), HasSubstr("wrote token ")));
  EXPECT_THAT(run.err, EndsWith("\r\x1b[K"));
  EXPECT_EQ(Text(At("a.md")), kLineText);
}

TEST_F(Cli, SeedsGiveTheSameBytes) {
  const auto read = [](const std::string& seed) {
    return Quire({"read", "--raw", "--temperature", "5", "--seed", seed, "--max-tokens", "30", kLine}).out;
  };
  const std::string first = read("1");
  EXPECT_EQ(read("1"), first);
  EXPECT_NE(read("2"), first);
  EXPECT_EQ(Quire({"read", "--temperature", "5", "--top-k", "1", "--threads", "3", kLine}).out, kLineText);
}

TEST_F(Cli, LimitsEndAPage) {
  const RunResult tokens = Quire({"read", "--json", "--max-tokens", "1", "--ngram-size", "100000", kLine});
  EXPECT_EQ(tokens.code, 1);
  EXPECT_EQ(Lines(tokens.out).at(0).At("status").as_string(), "length");
  const RunResult time = Quire({"read", "--json", "--timeout", "0.001", kLine});
  EXPECT_EQ(time.code, 3);
  EXPECT_EQ(Lines(time.out).at(0).At("error").At("kind").as_string(), "deadline");
}

TEST_F(Cli, TakesOtherPrompts) {
  EXPECT_EQ(Quire({"read", "--task", "plain", kLine}).out, kLineText);
  const std::string prompt = "<image>\nFree OCR. ";
  const Json record = Lines(Quire({"read", "--json", "--prompt", prompt, kLine}).out).at(0);
  EXPECT_EQ(record.At("prompt").as_string(), prompt);
  EXPECT_EQ(record.At("task").as_string(), "");
  EXPECT_EQ(record.At("text").as_string(), "fearsome beast,");
  EXPECT_LE(Quire({"read", "--prompt", "", kLine}).code, 1);
}

TEST_F(Cli, DryRunPlansWithoutReading) {
  const RunResult run = Quire({"read", "--dry-run", kSource + "/samples/a4-11pt.png", At("missing")});
  EXPECT_EQ(run.code, 1);
  const std::vector<Json> plans = Lines(run.out);
  ASSERT_EQ(plans.size(), 2U);
  EXPECT_EQ(Keys(plans[0]), DescribedFields("## Plan"));
  EXPECT_GT(plans[0].At("parts").as_array().size(), 1U);
  EXPECT_EQ(plans[1].At("error").At("kind").as_string(), "not_found");
}

TEST_F(Cli, StatsAreOnStandardError) {
  const RunResult run = Quire({"read", "--stats", Make("blank.tif", Tiff({{8, false}}))});
  EXPECT_EQ(run.code, 0);
  EXPECT_THAT(run.out, IsEmpty());
  EXPECT_THAT(run.err, AllOf(HasSubstr("blank: nothing is printed"), HasSubstr("load ")));
}

TEST_F(Cli, DamagedModelsAreNamed) {
  struct Case {
    const char* file;
    std::function<void(const std::string& path)> damage;
    int code;
    const char* said;
  };
  const auto remove = [](const std::string& path) { fs::remove(path); };
  const auto nonsense = [](const std::string& path) { Write(path, "nonsense"); };
  const auto replace = [](const char* from, const char* to) {
    return [=](const std::string& path) { Write(path, std::regex_replace(Text(path), std::regex(from), to)); };
  };
  const Case cases[] = {
      {"config.json", remove, 4, "found no config.json in it"},
      {"config.json", nonsense, 7, "not valid JSON"},
      {"config.json", replace("\"num_hidden_layers\": 6", "\"num_hidden_layers\": 7"), 7, "model.layers.6."},
      {"config.json", replace("\"eos_token_id\": 1", "\"eos_token_id\": 99999"), 7, "found 99999"},
      {"tokenizer.json", remove, 4, "wanted the model's tokenizer, found no such file"},
      {"tokenizer.json", nonsense, 7, "not valid JSON"},
      {"tokenizer.json", replace("\"id\": 1023", "\"id\": 5000"), 7, "this is the tokenizer of another model"},
      {"tokenizer.json", replace("<td>", "<xx>"), 7, "wanted the token \"<td>\""},
      {"quire.json", nonsense, 7, "not valid JSON"},
      {"quire.json", replace("\"small\"", "\"huge\""), 7, "this model has no mode 'huge'"},
      {"model-00001-of-00002.safetensors", remove, 7, "half downloaded?"},
      {"model-00002-of-00002.safetensors", [](const std::string& path) { fs::resize_file(path, 1'000'000); }, 7,
       "the file has 1000000 bytes"},
  };
  for (const Case& damaged : cases) {
    SCOPED_TRACE(std::string(damaged.file) + ": " + damaged.said);
    const std::string model = CopyModel();
    damaged.damage(model + "/" + damaged.file);
    const RunResult read = Quire({"read", "--model", model, kLine});
    EXPECT_EQ(read.code, damaged.code);
    EXPECT_THAT(read.out, IsEmpty());
    EXPECT_THAT(read.err, AllOf(HasSubstr(damaged.said), HasSubstr(model)));
    const RunResult inspect = Quire({"inspect", model});
    EXPECT_NE(inspect.code, 0);
    EXPECT_THAT(inspect.out + inspect.err, HasSubstr(damaged.said));
  }
  EXPECT_EQ(Quire({"read", "--model", "nonsense", kLine}).code, 4);
}

TEST_F(Cli, InspectsAModel) {
  const RunResult text = Quire({"inspect"});
  EXPECT_EQ(text.code, 0);
  EXPECT_THAT(text.out, AllOf(HasSubstr("DeepseekOCR2ForCausalLM"), HasSubstr("13,846,080")));
  EXPECT_TRUE(Lines(RunProgram({"sh", "-c", "\"$0\" inspect --json \"$1\" | tr -d '\\n'", kProgram, kModel}).out)
                  .at(0)
                  .is_object());
}

TEST_F(Cli, RunsWhereItIsInstalled) {
  const std::string program = Install(Text(QUIRE_BINARY_DIR "/quire-decode"));
  const RunResult run = RunProgram({program, "read", kLine}, {.folder = "/"});
  EXPECT_EQ(run.code, 0);
  EXPECT_EQ(run.out, kLineText);
  EXPECT_THAT(run.err, HasSubstr("no model was named"));
}

TEST_F(Cli, ALostDecoderFailsItsPage) {
  const RunResult killed = RunProgram({Install("#!/bin/sh\nkill -SEGV $$\n"), "read", "--json", kLine, kLine});
  EXPECT_EQ(killed.code, 3);
  const std::vector<Json> records = Lines(killed.out);
  ASSERT_EQ(records.size(), 2U);
  for (const Json& record : records)
    EXPECT_THAT(record.At("error").At("message").as_string(), HasSubstr("decoder died (signal 11"));

  const std::string program = Install("");
  fs::remove(At("installed/bin/quire-decode"));
  const RunResult missing = RunProgram({program, "read", kLine});
  EXPECT_EQ(missing.code, 8);
  EXPECT_THAT(missing.err, HasSubstr("quire-decode, which was not found"));
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // whose shadow is larger than any limit
TEST_F(Cli, LivesWithinLimitsOnMemory) {
  EXPECT_EQ(Quire({"read", kLine}, {.memory_bytes = 1'500'000'000}).out, kLineText);
  const RunResult little = Quire({"read", kLine}, {.memory_bytes = 100'000'000});
  EXPECT_EQ(little.code, 9);
  EXPECT_THAT(little.err, HasSubstr("memory"));
}
#endif

}  // namespace
}  // namespace quire
