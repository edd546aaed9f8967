// Netpbm's P1 to P6, read here: the first picture of a file.
#include <cctype>

#include "image/codecs/codec.h"

namespace quire::codecs {
namespace {

// Numbers and bytes of a Netpbm file from front to back.
class Scanner {
 public:
  explicit Scanner(Bytes bytes) : bytes_(bytes) {}

  // The next decimal number after white space and comments; at most 2^31 - 1.
  int Number() {
    SkipBlanks();
    if (!IsDigit()) Damaged("the Netpbm picture lacks a number");
    int64_t value = 0;
    for (; IsDigit(); ++at_) value = std::min<int64_t>(value * 10 + (bytes_[at_] - '0'), INT32_MAX);
    return static_cast<int>(value);
  }
  // The next digit 0 or 1 of a P1, which need no white space between them.
  int Bit() {
    SkipBlanks();
    if (!IsDigit()) Damaged("the Netpbm picture is cut off");
    return bytes_[at_++] - '0';
  }
  // The bytes behind one character of white space.
  Bytes Rest() const { return bytes_.subspan(std::min(at_ + 1, bytes_.size())); }

 private:
  bool IsDigit() const { return at_ < bytes_.size() && std::isdigit(bytes_[at_]) != 0; }
  void SkipBlanks() {
    for (; at_ < bytes_.size(); ++at_) {
      if (bytes_[at_] == '#') {
        while (at_ < bytes_.size() && bytes_[at_] != '\n') ++at_;
      } else if (std::isspace(bytes_[at_]) == 0) {
        return;
      }
    }
  }

  Bytes bytes_;
  size_t at_ = 2;  // behind "P6"
};

struct Form {
  int kind;  // 1 to 6
  int most;  // value of white
  int channels() const { return kind % 3 == 0 ? 3 : 1; }
  bool bitmap() const { return kind % 3 == 1; }
  bool text() const { return kind <= 3; }
};

Form ReadForm(Bytes bytes, Scanner* scanner, Header* header) {
  Form form{bytes[1] - '0', 1};
  header->width_px = scanner->Number();
  header->height_px = scanner->Number();
  if (!form.bitmap()) form.most = scanner->Number();
  if (form.most < 1 || form.most > 65535)
    Damaged("wanted a largest value of 1 to 65535, found " + std::to_string(form.most));
  return form;
}

bool Matches(Bytes bytes) {
  return bytes.size() > 2 && bytes[0] == 'P' && bytes[1] >= '1' && bytes[1] <= '6' &&
         (std::isspace(bytes[2]) != 0 || bytes[2] == '#');
}

Header ReadHeader(Bytes bytes, int, const Options&) {
  Scanner scanner(bytes);
  Header header;
  ReadForm(bytes, &scanner, &header);
  return header;
}

Image Decode(Job* job) {
  Scanner scanner(job->bytes);
  Header header;
  const Form form = ReadForm(job->bytes, &scanner, &header);
  const Bytes rest = scanner.Rest();
  const size_t values_per_row = static_cast<size_t>(header.width_px) * form.channels();
  const size_t value_bytes = form.most > 255 ? 2 : 1;
  const size_t row_bytes = form.bitmap() ? (values_per_row + 7) / 8 : values_per_row * value_bytes;
  if (!form.text() && rest.size() / row_bytes < static_cast<size_t>(header.height_px))
    Damaged("the Netpbm picture is cut off");

  // Value i of a row; a bitmap's 1 is black.
  const auto next = [&](const uint8_t* row, size_t i) {
    if (form.text()) return form.bitmap() ? 1 - scanner.Bit() : scanner.Number();
    if (form.bitmap()) return 1 - (row[i / 8] >> (7 - i % 8) & 1);
    return value_bytes == 2 ? row[i * 2] << 8 | row[i * 2 + 1] : int{row[i]};
  };
  Image image(header.width_px, header.height_px);
  for (int y = 0; y < image.height_px; ++y) {
    const uint8_t* row = form.text() ? nullptr : rest.data() + y * row_bytes;
    uint8_t* rgb = image.row(y);
    for (size_t i = 0; i < values_per_row; ++i) {
      const int64_t value = std::clamp(next(row, i), 0, form.most);
      const uint8_t level = static_cast<uint8_t>((value * 255 + form.most / 2) / form.most);
      for (int copy = 0; copy < 3 / form.channels(); ++copy) *rgb++ = level;
    }
  }
  return image;
}

}  // namespace

const Codec kPnm{"netpbm", Matches, ReadHeader, Decode};

}  // namespace quire::codecs
