#include "document/tables.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>

#include "base/ascii.h"

namespace quire {
namespace {

constexpr size_t kMaxTagBytes = 256;  // a longer tag is text; keeps the search for its end linear
constexpr int kMaxSpan = 1000;        // HTML's own limit for colspan

struct Tag {
  std::string name;  // lower case
  bool end = false;
  std::string_view attributes;
  size_t begin = 0, after = 0;  // bytes
};

bool IsLetter(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) != 0;
}

bool EndsTagName(char c) {
  return c == '>' || c == '/' || kBlanks.find(c) != kBlanks.npos;
}

std::optional<Tag> TagAt(std::string_view text, size_t begin) {
  const std::string_view rest = text.substr(begin, kMaxTagBytes);
  size_t at = 1;
  Tag tag{.begin = begin};
  tag.end = at < rest.size() && rest[at] == '/';
  if (tag.end) ++at;
  const size_t name = at;
  while (at < rest.size() && IsLetter(rest[at])) ++at;
  const size_t close = rest.find('>', at);
  if (at == name || close == rest.npos || !EndsTagName(rest[at])) return {};
  tag.name = Lower(rest.substr(name, at - name));
  tag.attributes = rest.substr(at, close - at);
  tag.after = begin + close + 1;
  return tag;
}

// The number in NAME="3" or NAME=3; 1 when there is none.
int Span(std::string_view attributes, std::string_view name) {
  const std::string lower = Lower(attributes);
  size_t at = lower.find(name);
  if (at == lower.npos) return 1;
  at = lower.find_first_not_of(" =\"'", at + name.size());
  int span = 1;
  if (at != lower.npos) std::from_chars(lower.data() + at, lower.data() + lower.size(), span);
  return std::clamp(span, 1, kMaxSpan);
}

class TableFinder {
 public:
  explicit TableFinder(std::string_view text) : text_(text) {}

  std::vector<HtmlTable> Find() {
    for (size_t at = text_.find('<'); at != text_.npos;) {
      const auto tag = TagAt(text_, at);
      if (tag) OnTag(*tag);
      at = text_.find('<', tag ? tag->after : at + 1);
    }
    if (depth_ > 0) EndTable(text_.size());
    return std::move(tables_);
  }

 private:
  void OnTag(const Tag& tag) {
    if (tag.name == "table") {
      if (tag.end) {
        if (depth_ == 1)
          tables_.back().closed = true, EndTable(tag.begin, tag.after);
        else if (depth_ > 1)
          --depth_;
      } else if (++depth_ == 1) {
        tables_.push_back({.begin = tag.begin});
        outside_ = tag.after;
      } else {
        tables_.back().plain = false;
      }
    } else if (depth_ == 1 && tag.name == "tr") {
      EndCell(tag.begin, tag.after);
      in_row_ = !tag.end;
      if (in_row_) tables_.back().rows.emplace_back();
    } else if (depth_ == 1 && (tag.name == "td" || tag.name == "th")) {
      EndCell(tag.begin, tag.after);
      if (!tag.end) BeginCell(tag);
    } else if (depth_ == 1 && !in_cell_ && (tag.name == "thead" || tag.name == "tbody" || tag.name == "tfoot")) {
      EndCell(tag.begin, tag.after);
    }
  }

  void BeginCell(const Tag& tag) {
    auto& rows = tables_.back().rows;
    if (!in_row_) rows.emplace_back();
    in_row_ = in_cell_ = true;
    rows.back().push_back({{}, Span(tag.attributes, "colspan"), Span(tag.attributes, "rowspan")});
    cell_ = tag.after;
  }

  // What lies between the last tag of the table and end is the open cell's text, or stray.
  void EndCell(size_t end, size_t after) {
    if (in_cell_)
      tables_.back().rows.back().back().text = text_.substr(cell_, end - cell_);
    else if (!IsBlank(text_.substr(outside_, end - outside_)))
      tables_.back().plain = false;
    in_cell_ = false;
    outside_ = after;
  }

  void EndTable(size_t end) { EndTable(end, end); }
  void EndTable(size_t end, size_t after) {
    EndCell(end, after);
    tables_.back().end = after;
    depth_ = 0;
    in_row_ = false;
  }

  std::string_view text_;
  std::vector<HtmlTable> tables_;
  int depth_ = 0;  // of tables
  bool in_row_ = false, in_cell_ = false;
  size_t cell_ = 0;     // where the open cell's text begins
  size_t outside_ = 0;  // where the text after the last tag outside of cells begins
};

bool FitsPipes(const HtmlTable& table) {
  const auto has_span = [](const TableCell& cell) { return cell.columns != 1 || cell.rows != 1; };
  return table.closed && table.plain && !table.rows.empty() && std::ranges::none_of(table.rows, [&](const auto& row) {
           return row.empty() || std::ranges::any_of(row, has_span);
         });
}

std::string PipeCell(std::string_view text) {
  std::string cell;
  for (char c : Trim(text)) {
    if (c == '|' && !cell.ends_with('\\')) cell += '\\';
    cell += c == '\n' || c == '\r' ? ' ' : c;
  }
  return cell;
}

std::string PipeTable(const HtmlTable& table) {
  const size_t columns = std::ranges::max(table.rows, {}, &std::vector<TableCell>::size).size();
  std::string out;
  for (const auto& row : table.rows) {
    for (size_t i = 0; i < columns; ++i) out += "| " + (i < row.size() ? PipeCell(row[i].text) : "") + ' ';
    out += "|\n";
    if (&row != &table.rows.front()) continue;
    for (size_t i = 0; i < columns; ++i) out += "| --- ";
    out += "|\n";
  }
  return out;
}

}  // namespace

std::vector<HtmlTable> FindTables(std::string_view text) {
  return TableFinder(text).Find();
}

std::vector<int> RowWidths(const HtmlTable& table) {
  std::vector<int> widths(table.rows.size(), 0);
  std::vector<int> change(table.rows.size() + 1, 0);  // of the columns reaching in from above, row by row
  int reaching_in = 0;
  for (size_t row = 0; row < table.rows.size(); ++row) {
    reaching_in += change[row];
    widths[row] = reaching_in;
    for (const TableCell& cell : table.rows[row]) {
      widths[row] += cell.columns;
      change[row + 1] += cell.columns;
      change[std::min(row + cell.rows, table.rows.size())] -= cell.columns;
    }
  }
  return widths;
}

std::vector<std::string> CheckTables(std::string_view text) {
  std::vector<std::string> faults;
  int number = 0;
  for (const HtmlTable& table : FindTables(text)) {
    const std::string name = "table " + std::to_string(++number);
    if (!table.closed) {
      faults.push_back(name + " has no end");
      continue;
    }
    const std::vector<int> widths = RowWidths(table);
    if (widths.empty()) continue;
    const auto [least, most] = std::ranges::minmax(widths);
    if (least != most)
      faults.push_back(name + " has rows of " + std::to_string(least) + " to " + std::to_string(most) + " columns");
  }
  return faults;
}

std::string PipeTables(std::string_view text) {
  std::string out;
  size_t copied = 0;
  for (const HtmlTable& table : FindTables(text)) {
    if (!FitsPipes(table)) continue;
    out += text.substr(copied, table.begin - copied);
    if (!IsBlank(out)) out += "\n\n";
    out += PipeTable(table) + "\n";
    copied = table.end;
  }
  out += text.substr(copied);
  return out;
}

}  // namespace quire
