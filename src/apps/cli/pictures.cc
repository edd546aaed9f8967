#include "apps/cli/pictures.h"

#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <future>
#include <memory>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "image/decoder_client.h"

namespace quire::cli {
namespace {

std::vector<uint8_t> ReadStandardInput(int64_t max_bytes, const std::function<bool()>& canceled) {
  constexpr int kAskAgainMs = 100;
  std::vector<uint8_t> bytes;
  uint8_t block[65536];
  for (;;) {
    pollfd input{STDIN_FILENO, POLLIN, 0};
    while (poll(&input, 1, kAskAgainMs) <= 0)
      if (canceled()) throw Error(ErrorKind::kCanceled, "canceled", "-");
    const ssize_t n = read(STDIN_FILENO, block, sizeof block);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw Error(ErrorKind::kIo, std::string("cannot read: ") + std::strerror(errno), "-");
    if (n == 0) return bytes;
    bytes.insert(bytes.end(), block, block + n);
    if (static_cast<int64_t>(bytes.size()) > max_bytes)
      throw Error(ErrorKind::kTooLarge,
                  "wanted a picture of at most " + std::to_string(max_bytes) + " bytes, found more", "-");
  }
}

// A page, or why there is none.
struct Outcome {
  Picture picture;
  std::optional<Error> error;
  bool last_of_file = true;
};

// Walks over the pages of all inputs. One page is decoded ahead, on a thread of its own.
class Walk {
 public:
  Walk(const std::vector<std::string>& inputs, const DecodeOptions& options, const std::function<bool()>& canceled)
      : inputs_(inputs), options_(options), canceled_(canceled), pool_(options) {}
  ~Walk() { stop_ = true; }  // the page ahead is not waited for longer than its decoder takes

  std::optional<Outcome> Next() {
    if (!ahead_.valid() && !Begin()) return std::nullopt;
    Outcome outcome = ahead_.get();
    if (outcome.last_of_file) {
      ++input_;
      page_ = 0;
      file_.reset();
    } else {
      ++page_;
    }
    Begin();
    return outcome;
  }

 private:
  bool Begin() {
    if (input_ == inputs_.size()) return false;
    ahead_ = std::async(std::launch::async, [this] { return DecodeOne(); });
    return true;
  }

  Outcome DecodeOne() {
    const auto start = std::chrono::steady_clock::now();
    const std::string& source = inputs_[input_];
    Outcome outcome;
    outcome.picture.source = source;
    outcome.picture.page = page_ + 1;
    try {
      if (!file_) file_ = std::make_unique<PictureFile>(Open(source));
      DecodedPage page = pool_.Decode(*file_, page_);
      pages_ = page.info.pages;
      outcome.picture.image = std::move(page.image);
      outcome.picture.format = page.info.format;
      outcome.picture.warnings = std::move(page.warnings);
      outcome.last_of_file = page_ + 1 >= pages_;
    } catch (const Error& error) {
      outcome.error = error;
      if (page_ == 0) pages_ = CountPages();
      outcome.last_of_file = page_ + 1 >= pages_;  // a bad page does not hide those behind it
    }
    outcome.picture.decode_ms = MsSince(start);
    return outcome;
  }

  PictureFile Open(const std::string& source) const {
    if (source != "-") return PictureFile::Open(source);
    const auto canceled = [this] { return stop_ || canceled_(); };
    return PictureFile::FromBytes(ReadStandardInput(options_.max_bytes, canceled), source);
  }

  // Of a file whose first page is bad.
  int CountPages() {
    try {
      return file_ ? pool_.Inspect(*file_).pages : 1;
    } catch (const Error&) {
      return 1;
    }
  }

  const std::vector<std::string>& inputs_;
  DecodeOptions options_;
  const std::function<bool()>& canceled_;
  std::atomic<bool> stop_{false};
  DecodePool pool_;
  size_t input_ = 0;
  int page_ = 0, pages_ = 1;
  std::unique_ptr<PictureFile> file_;
  std::future<Outcome> ahead_;
};

}  // namespace

void ForEachPicture(const std::vector<std::string>& inputs, const PictureOptions& options,
                    const std::function<bool(const Picture&)>& on_page,
                    const std::function<bool(const Picture&, const Error&)>& on_error) {
  DecodeOptions decode;
  decode.processes = 1;
  decode.max_pixels = options.max_pixels;
  Walk walk(inputs, decode, options.canceled);
  while (const std::optional<Outcome> outcome = walk.Next()) {
    const Picture& picture = outcome->picture;
    if (!(outcome->error ? on_error(picture, *outcome->error) : on_page(picture))) return;
  }
}

}  // namespace quire::cli
