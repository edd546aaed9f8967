// GIF, read here: the first frame on its canvas, what is transparent or uncovered in white.
#include "image/codecs/byte_reader.h"
#include "image/codecs/codec.h"

namespace quire::codecs {
namespace {

constexpr int kMostCodes = 4096;

struct Frame {
  int left = 0, top = 0, width = 0, height = 0;
  bool interlaced = false;
  int transparent = -1;  // index of the colour that is none
  Bytes palette;         // RGB triples
  size_t data = 0;       // where the compressed pixels begin
};

Bytes Palette(Bytes bytes, size_t at, int flags) {
  if ((flags & 0x80) == 0) return {};
  const size_t size = size_t{3} << ((flags & 7) + 1);
  if (bytes.size() < at + size) Damaged("the GIF is cut off in its colours");
  return bytes.subspan(at, size);
}

// Behind a chain of sub-blocks: a length before each, a 0 behind the last.
size_t SkipSubBlocks(const ByteReader& reader, size_t at) {
  while (reader.U8(at) != 0) at += reader.U8(at) + size_t{1};
  return at + 1;
}

Frame FindFirstFrame(Bytes bytes) {
  const ByteReader reader(bytes, true);
  Frame frame;
  frame.palette = Palette(bytes, 13, reader.U8(10));
  size_t at = 13 + frame.palette.size();
  for (; at < bytes.size() && reader.U8(at) == 0x21; at = SkipSubBlocks(reader, at + 2)) {
    const bool has_transparency = reader.U8(at + 1) == 0xF9 && (reader.U8(at + 3) & 1) != 0;
    if (has_transparency) frame.transparent = reader.U8(at + 6);
  }
  if (reader.U8(at) != 0x2C) Damaged("the GIF has no picture");
  frame.left = reader.U16(at + 1);
  frame.top = reader.U16(at + 3);
  frame.width = reader.U16(at + 5);
  frame.height = reader.U16(at + 7);
  const int flags = reader.U8(at + 9);
  frame.interlaced = (flags & 0x40) != 0;
  const Bytes local = Palette(bytes, at + 10, flags);
  if (!local.empty()) frame.palette = local;
  frame.data = at + 10 + local.size();
  return frame;
}

// The codes of LZW out of the sub-blocks, lowest bits first.
class CodeReader {
 public:
  CodeReader(const ByteReader& reader, size_t at) : reader_(reader), at_(at) {}

  // -1 at the end of the data.
  int Next(int code_bits) {
    while (bit_count_ < code_bits) {
      if (left_in_block_ == 0) {
        left_in_block_ = reader_.U8(at_++);
        if (left_in_block_ == 0) return -1;
      }
      bits_ |= uint32_t{reader_.U8(at_++)} << bit_count_;
      bit_count_ += 8;
      --left_in_block_;
    }
    const int code = static_cast<int>(bits_ & ((1u << code_bits) - 1));
    bits_ >>= code_bits;
    bit_count_ -= code_bits;
    return code;
  }

 private:
  const ByteReader& reader_;
  size_t at_;
  int left_in_block_ = 0;
  uint32_t bits_ = 0;
  int bit_count_ = 0;
};

// Colour indices of a frame in the order of the file; fewer than count when the data end early.
std::vector<uint8_t> Unpack(Bytes bytes, size_t at, size_t count) {
  const ByteReader reader(bytes, true);
  const int least_bits = reader.U8(at);
  if (least_bits < 1 || least_bits > 8) Damaged("the GIF has codes of " + std::to_string(least_bits) + " bits");
  const int clear = 1 << least_bits;
  const int end = clear + 1;
  std::vector<int> prefix(kMostCodes), last(kMostCodes);  // code = the string of prefix, then the colour last
  for (int i = 0; i < clear; ++i) last[i] = i;

  CodeReader codes(reader, at + 1);
  std::vector<uint8_t> pixels, backwards;
  pixels.reserve(count);
  int bits = least_bits + 1;
  int next = end + 1;
  int previous = -1;
  while (pixels.size() < count) {
    const int code = codes.Next(bits);
    if (code < 0 || code == end) break;
    if (code == clear) {
      bits = least_bits + 1;
      next = end + 1;
      previous = -1;
      continue;
    }
    if (code > next || (code == next && previous < 0) || (previous < 0 && code >= clear)) break;
    backwards.clear();
    int walk = code;
    if (code == next) {  // the string being made: the last one and its own first colour
      backwards.push_back(0);
      walk = previous;
    }
    for (; walk > end; walk = prefix[walk]) backwards.push_back(static_cast<uint8_t>(last[walk]));
    const uint8_t first = static_cast<uint8_t>(walk);
    backwards.push_back(first);
    if (code == next) backwards.front() = first;
    if (previous >= 0 && next < kMostCodes) {
      prefix[next] = previous;
      last[next] = first;
      ++next;
      if (next == 1 << bits && bits < 12) ++bits;
    }
    previous = code;
    const size_t taken = std::min(backwards.size(), count - pixels.size());
    pixels.insert(pixels.end(), backwards.rbegin(), backwards.rbegin() + static_cast<ptrdiff_t>(taken));
  }
  return pixels;
}

// Rows of an interlaced frame in the order of the file.
std::vector<int> RowOrder(const Frame& frame) {
  std::vector<int> rows;
  if (!frame.interlaced) {
    for (int y = 0; y < frame.height; ++y) rows.push_back(y);
    return rows;
  }
  constexpr int kPasses[][2] = {{0, 8}, {4, 8}, {2, 4}, {1, 2}};
  for (const auto& [first, step] : kPasses)
    for (int y = first; y < frame.height; y += step) rows.push_back(y);
  return rows;
}

bool Matches(Bytes bytes) {
  return StartsWith(bytes, "GIF87a") || StartsWith(bytes, "GIF89a");
}

Header ReadHeader(Bytes bytes, int, const Options&) {
  const ByteReader reader(bytes, true);
  const Frame frame = FindFirstFrame(bytes);
  if (frame.width == 0 || frame.height == 0) Damaged("the GIF's first picture has no pixels");
  return {1, std::max<int>(reader.U16(6), frame.left + frame.width),
          std::max<int>(reader.U16(8), frame.top + frame.height)};
}

Image Decode(Job* job) {
  const Frame frame = FindFirstFrame(job->bytes);
  const size_t count = static_cast<size_t>(frame.width) * frame.height;
  const std::vector<uint8_t> pixels = Unpack(job->bytes, frame.data, count);
  if (pixels.size() < count)
    job->warnings.push_back("the GIF is damaged after " + std::to_string(pixels.size()) + " of " +
                            std::to_string(count) + " pixels");
  Image image(job->header.width_px, job->header.height_px, 255);
  auto pixel = pixels.begin();
  for (int y : RowOrder(frame)) {
    uint8_t* rgb = image.row(frame.top + y) + size_t{3} * frame.left;
    for (int x = 0; x < frame.width && pixel != pixels.end(); ++x, ++pixel, rgb += 3) {
      const size_t color = size_t{3} * *pixel;
      if (*pixel != frame.transparent && color < frame.palette.size())
        std::copy_n(frame.palette.begin() + static_cast<ptrdiff_t>(color), 3, rgb);
    }
  }
  return image;
}

}  // namespace

const Codec kGif{"gif", Matches, ReadHeader, Decode};

}  // namespace quire::codecs
