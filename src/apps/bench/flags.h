// Command lines of the small programs beside quire, which are built without CLI11: --name VALUE pairs and one folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

// Each value is asked for once; Finish refuses what nobody asked for. All throw Error{kUsage} with the usage as hint.
class Flags {
 public:
  Flags(int argc, char** argv, std::string usage);

  std::string Text(std::string_view name, std::string fallback);
  std::string Required(std::string_view name);
  uint64_t Number(std::string_view name, uint64_t fallback, uint64_t least = 0);
  int Count(std::string_view name, int fallback);  // at least 1
  double Real(std::string_view name, double fallback);
  std::vector<int> Counts(std::string_view name, std::vector<int> fallback);  // "1,16,64"
  // The place of the value in `words`; the first word where the flag is not there.
  size_t Choice(std::string_view name, std::initializer_list<std::string_view> words);
  // The one argument that is no flag.
  std::string Folder(std::string_view what);
  void Finish() const;

  [[noreturn]] void Refuse(const std::string& what) const;

 private:
  struct Flag {
    std::string name, value;
  };
  const std::string* Take(std::string_view name, std::string* value);
  uint64_t Parse(std::string_view name, const std::string& text, uint64_t least) const;

  std::string usage_;
  std::vector<Flag> flags_;
  std::vector<std::string> others_;
};

// The parts of "a,b,c".
std::vector<std::string> SplitAtCommas(const std::string& text);

// Runs a program's body; an Error becomes a line on the error output and the exit code of its kind.
int RunProgram(const char* name, const std::function<int()>& body);

}  // namespace quire
