#include "apps/cli/bench_picture.h"

#include <png.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>

#include "base/error.h"

namespace quire::cli {
namespace {

// Well mixed bits (splitmix64, Steele, Lea and Flood 2014), so that a few bands tell numbers apart.
uint64_t Mixed(uint64_t number) {
  number += 0x9e3779b97f4a7c15;
  number = (number ^ number >> 30) * 0xbf58476d1ce4e5b9;
  number = (number ^ number >> 27) * 0x94d049bb133111eb;
  return number ^ number >> 31;
}

std::vector<uint8_t> EncodePng(const Image& picture) {
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  png.width = static_cast<uint32_t>(picture.width_px);
  png.height = static_cast<uint32_t>(picture.height_px);
  png.format = PNG_FORMAT_RGB;
  png.flags = PNG_IMAGE_FLAG_FAST;
  std::vector<uint8_t> bytes(PNG_IMAGE_PNG_SIZE_MAX(png));
  png_alloc_size_t size = bytes.size();
  if (png_image_write_to_memory(&png, bytes.data(), &size, 0, picture.rgb.data(), 0, nullptr) == 0)
    throw Error(ErrorKind::kOutOfMemory, std::string("cannot make a PNG: ") + png.message);
  bytes.resize(size);
  bytes.shrink_to_fit();
  return bytes;
}

}  // namespace

Image Varied(const Image& picture, uint64_t number) {
  constexpr size_t kBands = 32;
  const uint64_t levels = Mixed(number);  // two bits a band
  std::vector<uint8_t> change(picture.row_bytes());
  for (size_t x = 0; x < change.size(); ++x) change[x] = levels >> 2 * (x * kBands / change.size()) & 3;
  Image varied = picture;
  for (int y = 0; y < varied.height_px; ++y) {
    uint8_t* row = varied.row(y);
    for (size_t x = 0; x < change.size(); ++x) row[x] = row[x] < 128 ? row[x] + change[x] : row[x] - change[x];
  }
  return varied;
}

BenchPictures::BenchPictures(bool same)
    : same_(same),
      // A server may have seen those of an earlier run.
      number_(static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count())) {}

BenchOriginal BenchPictures::Load(const std::string& path) {
  const PictureFile file = PictureFile::Open(path);
  BenchOriginal original{.file = {.name = path}};
  std::ifstream in(path, std::ios::binary);
  original.file.bytes.assign(std::istreambuf_iterator<char>(in), {});
  if (!same_) original.pixels = decoders_.Decode(file).image;
  return original;
}

BenchPicture BenchPictures::Make(const BenchOriginal& original) {
  if (same_) return original.file;
  return {.name = original.file.name, .bytes = EncodePng(Varied(original.pixels, number_++))};
}

}  // namespace quire::cli
