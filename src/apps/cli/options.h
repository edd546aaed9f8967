// What the options of all subcommands have in common.
#pragma once

#include <CLI/CLI.hpp>
#include <charconv>
#include <functional>
#include <limits>
#include <sstream>
#include <string>
#include <utility>

namespace quire::cli {

// A number from least to most: a whole one for an integer type.
template <typename Number>
CLI::Validator NumberIn(Number least, Number most) {
  return CLI::Validator(
      [=](std::string& text) -> std::string {
        Number number{};
        const char* end = text.data() + text.size();
        const auto [stop, error] = std::from_chars(text.data(), end, number);
        if (error == std::errc() && stop == end && number >= least && number <= most) return {};
        std::ostringstream wanted;
        wanted.precision(10);
        wanted << (std::is_integral_v<Number> ? "wanted a whole number " : "wanted a number ");
        if (most < std::numeric_limits<Number>::max()) {
          wanted << "from " << least << " to " << most;
        } else {
          wanted << "of at least " << least;
        }
        return wanted.str() + ", found \"" + text + "\"";
      },
      "");
}

inline CLI::Validator AtLeast(int least) {
  return NumberIn(least, std::numeric_limits<int>::max() - 1);
}

inline CLI::Validator NotEmpty() {
  return CLI::Validator(
      [](std::string& text) {
        return text.empty() ? "wanted some text, found none: is a variable of the shell empty?" : std::string();
      },
      "");
}

// Adds options to one group of the help text.
class Group {
 public:
  Group(CLI::App* command, std::string name) : command_(*command), name_(std::move(name)) {}

  // form: how the help text shows the value, "N".
  template <typename Value>
  CLI::Option* Add(const std::string& names, Value& value, const std::string& form, const std::string& text) {
    return command_.add_option(names, value, text)->group(name_)->type_name(form)->option_text(form);
  }
  // Calls set with the value that was given.
  template <typename Value>
  CLI::Option* AddFunction(const std::string& names, const std::string& form, const std::string& text,
                           std::function<void(const Value&)> set) {
    return command_.add_option_function<Value>(names, std::move(set), text)
        ->group(name_)
        ->type_name(form)
        ->option_text(form);
  }
  CLI::Option* AddFlag(const std::string& names, bool& value, const std::string& text) {
    return command_.add_flag(names, value, text)->group(name_)->option_text(" ");
  }

 private:
  CLI::App& command_;
  std::string name_;
};

}  // namespace quire::cli
