// HTML tables in a page's text, as the models write them: <table><tr><td rowspan="2">...</td>...</tr>...</table>.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace quire {

struct TableCell {
  std::string_view text;      // between the tags, as written
  int columns = 1, rows = 1;  // spans
};

struct HtmlTable {
  size_t begin = 0, end = 0;  // bytes of the text, tags included
  std::vector<std::vector<TableCell>> rows;
  bool closed = false;  // </table> was there
  bool plain = true;    // nothing but rows and cells: no table inside, no text outside of cells
};

// Never throws, linear. Cells and rows may lack their end tags; tables inside a cell are part of its text.
std::vector<HtmlTable> FindTables(std::string_view text);

// Columns of each row, those that cells of earlier rows reach into included.
std::vector<int> RowWidths(const HtmlTable& table);

// One line for each fault: rows of different width, a table without its end.
std::vector<std::string> CheckTables(std::string_view text);

// The text with each table turned into a pipe table (GitHub's Markdown) that can be one without loss: closed, plain, no
// spans. The others stay.
std::string PipeTables(std::string_view text);

}  // namespace quire
