// Decoding of foreign pictures, in processes of their own: quire-decode, which has little memory, no files and a filter
// on its system calls. Whatever a picture does to its decoder, the caller gets an Error.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "image/decode_protocol.h"
#include "image/image.h"
#include "image/picture_info.h"

namespace quire {

// An encoded picture, open for the decode process. Movable; may be decoded from several threads at once.
class PictureFile {
 public:
  // Throws Error{kNotFound, kIo}. Only regular files.
  static PictureFile Open(const std::string& path);
  // Copies the bytes into memory that can be shared. name is the `where` of errors.
  static PictureFile FromBytes(std::span<const uint8_t> bytes, std::string name);

  const std::string& name() const { return name_; }
  int64_t bytes() const { return bytes_; }
  int fd() const { return fd_.get(); }

 private:
  PictureFile(std::string name, UniqueFd fd, int64_t bytes)
      : name_(std::move(name)), fd_(std::move(fd)), bytes_(bytes) {}

  std::string name_;
  UniqueFd fd_;
  int64_t bytes_;
};

struct DecodeOptions {
  int processes = 2;                 // at most; started when needed
  std::string program;               // quire-decode; none: the one beside the running program
  int64_t max_pixels = 200'000'000;  // of a page
  int64_t max_bytes = 1 << 30;       // of a file
  int cpu_seconds = 60;              // for one page
  bool raw_color = false;            // CMYK by Pillow's arithmetic instead of the picture's profile
};

struct DecodedPage {
  PictureInfo info;
  Image image;
  std::vector<std::string> warnings;  // what the codec passed over
};

// The decode processes of a program. All functions may be called from any thread; a call waits while all processes
// work. The destructor must not run while another call does.
class DecodePool {
 public:
  // Throws Error{kUnsupported} when there is no quire-decode.
  explicit DecodePool(DecodeOptions options = {});
  ~DecodePool();
  DecodePool(const DecodePool&) = delete;

  // The header of a page (from 0). Throws Error{kBadInput, kUnsupported, kTooLarge, kNotFound} with the file's name,
  // {kBadInput} too when the decoder died of it.
  PictureInfo Inspect(const PictureFile& file, int page = 0);

  // A page as a viewer shows it: upright, alpha on white, 8-bit RGB. Throws as Inspect does. The pages of a file: call
  // with 0, 1, ... below info.pages.
  DecodedPage Decode(const PictureFile& file, int page = 0);

 private:
  struct Process {
    pid_t pid = -1;
    DecodeChannel channel;
    int exchanges = 0;
  };
  class Lease;  // a process taken from the pool for one exchange

  Process Start() const;
  DecodedPage Exchange(DecodeKind kind, const PictureFile& file, int page);
  DecodeReply Await(Lease* lease) const;

  DecodeOptions options_;
  std::mutex mutex_;
  std::condition_variable freed_;
  std::vector<Process> idle_;  // pid -1: to be started
};

}  // namespace quire
