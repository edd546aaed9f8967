// quire-decode: decodes one picture after another for the program that started it, until the channel on its standard
// input is closed. What it says and hears: image/decode_protocol.h.
//
//   quire-decode MAX_PIXELS MAX_BYTES
#include <libheif/heif.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "apps/decode/sandbox.h"
#include "base/check.h"
#include "image/codecs/picture.h"
#include "image/decode_protocol.h"

namespace quire {
namespace {

// Memory of another process, mapped here.
class SharedMemory {
 public:
  SharedMemory(const UniqueFd& fd, int64_t bytes, int protection, int flags) : bytes_(static_cast<size_t>(bytes)) {
    if (bytes_ == 0) return;
    data_ = mmap(nullptr, bytes_, protection, flags, fd.get(), 0);
    if (data_ == MAP_FAILED) throw std::bad_alloc();
  }
  ~SharedMemory() {
    if (bytes_ > 0) munmap(data_, bytes_);
  }
  SharedMemory(const SharedMemory&) = delete;
  uint8_t* data() const { return static_cast<uint8_t*>(data_); }
  codecs::Bytes bytes() const { return {data(), bytes_}; }

 private:
  void* data_ = nullptr;
  size_t bytes_;
};

void PutInfo(const PictureInfo& info, DecodeReply* reply) {
  reply->pages = info.pages;
  reply->width_px = info.width_px;
  reply->height_px = info.height_px;
  reply->orientation = info.orientation;
  std::strncpy(reply->format, info.format.c_str(), sizeof reply->format - 1);
}

// One request. False when the client is gone.
bool Answer(const DecodeChannel& channel, const DecodeRequest& request, const UniqueFd& file) {
  DecodeReply reply;
  try {
    const codecs::Options options{request.max_pixels, request.raw_color};
    const SharedMemory encoded(file, request.file_bytes, PROT_READ, MAP_PRIVATE);
    PutInfo(InspectPicture(encoded.bytes(), request.page, options), &reply);
    if (request.kind == DecodeKind::kDecode) {
      PixelBuffer buffer;
      UniqueFd memory;
      if (!channel.Send(reply) || !channel.Receive(&buffer, &memory)) return false;
      std::vector<std::string> warnings;
      const Image image = DecodePicture(encoded.bytes(), request.page, options, &warnings);
      PutLines(warnings, &reply);
      const SharedMemory pixels(memory, buffer.bytes, PROT_WRITE, MAP_SHARED);
      QUIRE_CHECK_EQ(pixels.bytes().size(), image.rgb.size());
      std::copy(image.rgb.begin(), image.rgb.end(), pixels.data());
    }
  } catch (const Error& error) {
    PutError(error, &reply);
  } catch (const std::bad_alloc&) {
    PutError(Error(ErrorKind::kTooLarge, "decoding the picture takes more memory than the decoder may have"), &reply);
  }
  return channel.Send(reply);
}

int Serve(int64_t max_pixels, int64_t max_bytes) {
  // The file, the picture as stored and turned, the client's copy, and up to 8 bytes a pixel inside a codec.
  constexpr int64_t kCodeBytes = 512 << 20;
  heif_init(nullptr);  // looks for files, which the sandbox forbids
  EnterSandbox(kCodeBytes + max_bytes + max_pixels * (3 * 3 + 8));
  const DecodeChannel channel{UniqueFd(STDIN_FILENO)};
  for (;;) {
    DecodeRequest request;
    UniqueFd file;
    if (!channel.Receive(&request, &file)) return 0;
    LimitCpu(request.cpu_seconds);
    if (!Answer(channel, request, file)) return 0;
  }
}

}  // namespace
}  // namespace quire

int main(int count, char** arguments) {
  struct stat input;
  if (count != 3 || fstat(STDIN_FILENO, &input) != 0 || !S_ISSOCK(input.st_mode)) {
    std::fputs("quire-decode is started by quire, which sends it pictures to decode\n", stderr);
    return 2;
  }
  try {
    return quire::Serve(std::atoll(arguments[1]), std::atoll(arguments[2]));
  } catch (const quire::Error&) {
    return 1;
  }
}
