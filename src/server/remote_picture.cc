#include "server/remote_picture.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <netdb.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>

#include "base/error.h"

namespace quire {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMostUrlBytes = 4096;

// A range of addresses: the first `bits` of `start`.
struct Range {
  const char* start;
  int bits;
};
// What is not the public net: IANA's special-purpose registries for IPv4 and IPv6 (RFC 6890 and its updates),
// multicast.
constexpr std::array<Range, 17> kPrivate4 = {{
    {"0.0.0.0", 8},
    {"10.0.0.0", 8},
    {"100.64.0.0", 10},
    {"127.0.0.0", 8},
    {"169.254.0.0", 16},
    {"172.16.0.0", 12},
    {"192.0.0.0", 24},
    {"192.0.2.0", 24},
    {"192.31.196.0", 24},
    {"192.52.193.0", 24},
    {"192.88.99.0", 24},
    {"192.168.0.0", 16},
    {"192.175.48.0", 24},
    {"198.18.0.0", 15},
    {"198.51.100.0", 24},
    {"203.0.113.0", 24},
    {"224.0.0.0", 3},
}};
// Outside 2000::/3 nothing is public; inside it these are not: Teredo and other protocol assignments, documentation,
// 6to4 (it holds an IPv4 address).
constexpr std::array<Range, 4> kPrivate6 = {{{"2001::", 23}, {"2001:db8::", 32}, {"2002::", 16}, {"3fff::", 20}}};

template <size_t N>
bool Inside(const std::array<uint8_t, N>& address, const Range& range, int family) {
  std::array<uint8_t, N> start;
  inet_pton(family, range.start, start.data());
  for (int bit = 0; bit < range.bits; ++bit) {
    const int shift = 7 - bit % 8;
    if ((address[bit / 8] >> shift & 1) != (start[bit / 8] >> shift & 1)) return false;
  }
  return true;
}

bool IsPublic4(const std::array<uint8_t, 4>& address) {
  return std::ranges::none_of(kPrivate4, [&](const Range& range) { return Inside(address, range, AF_INET); });
}

bool IsPublic6(const std::array<uint8_t, 16>& address) {
  if ((address[0] & 0xe0) != 0x20) return false;  // ::ffff:0:0/96 and 64:ff9b::/96, which hold IPv4, are outside too
  return std::ranges::none_of(kPrivate6, [&](const Range& range) { return Inside(address, range, AF_INET6); });
}

struct FreeUrl {
  void operator()(CURLU* url) const { curl_url_cleanup(url); }
};
struct FreeEasy {
  void operator()(CURL* easy) const { curl_easy_cleanup(easy); }
};
struct FreeList {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};
using UrlHandle = std::unique_ptr<CURLU, FreeUrl>;

std::string PartOf(CURLU* url, CURLUPart part, unsigned flags = 0) {
  char* text = nullptr;
  if (curl_url_get(url, part, &text, flags) != CURLUE_OK) return {};
  std::string copy(text);
  curl_free(text);
  return copy;
}

// One fetch, over all its hops.
class Fetcher {
 public:
  Fetcher(const RemoteOptions& options, const std::string& path, const std::function<bool()>& canceled)
      : options_(options), path_(path), canceled_(canceled), until_(Clock::now() + options.timeout) {}

  std::vector<uint8_t> Run(std::string url) {
    for (int hop = 0; hop <= options_.max_hops; ++hop) {
      const std::optional<std::string> next = FetchOnce(url);
      if (!next) return std::move(bytes_);
      url = *next;
    }
    throw Bad("wanted at most " + std::to_string(options_.max_hops) + " redirects, found more");
  }

 private:
  Error Bad(const std::string& what) const {
    return {ErrorKind::kBadInput, "cannot fetch the picture: " + what, path_};
  }
  Error Refused(const std::string& what) const { return {ErrorKind::kUsage, what, path_}; }
  int MsLeft() const {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until_ - Clock::now()).count();
    if (left <= 0) throw Error(ErrorKind::kDeadline, "the picture was not fetched in time", path_);
    return static_cast<int>(left);
  }

  // The address to connect to, checked.
  std::string Resolve(const std::string& host, const std::string& port) const {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found))
      throw Bad("the name " + host + " is not known: " + gai_strerror(error));
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
    std::string first;
    for (const addrinfo* info = found; info; info = info->ai_next) {
      char text[INET6_ADDRSTRLEN] = {};
      if (info->ai_family == AF_INET) {
        inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(info->ai_addr)->sin_addr, text, sizeof text);
      } else if (info->ai_family == AF_INET6) {
        inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(info->ai_addr)->sin6_addr, text, sizeof text);
      } else {
        continue;
      }
      if (!options_.allow_private && !IsPublicAddress(text))
        throw Refused("wanted a picture of the public net, found a private address");
      if (first.empty()) first = info->ai_family == AF_INET6 ? "[" + std::string(text) + "]" : text;
    }
    if (first.empty()) throw Bad("the name " + host + " has no address");
    return first;
  }

  // The address of the next hop; none: bytes_ holds the picture.
  std::optional<std::string> FetchOnce(const std::string& text) {
    if (text.size() > kMostUrlBytes)
      throw Refused("wanted a URL of at most " + std::to_string(kMostUrlBytes) + " bytes, found more");
    const UrlHandle url(curl_url());
    if (curl_url_set(url.get(), CURLUPART_URL, text.c_str(), 0) != CURLUE_OK) throw Refused("this is no URL");
    const std::string scheme = PartOf(url.get(), CURLUPART_SCHEME);
    if (scheme != "http" && scheme != "https") throw Refused("wanted a URL of http or https, found " + scheme);
    if (!PartOf(url.get(), CURLUPART_USER).empty()) throw Refused("wanted a URL without a user's name");
    std::string host = PartOf(url.get(), CURLUPART_HOST);
    if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
    const std::string port = PartOf(url.get(), CURLUPART_PORT, CURLU_DEFAULT_PORT);
    const int number = std::stoi(port);
    if (number != 80 && number != 443 && number < 1024) throw Refused("wanted port 80 or 443, found " + port);
    const std::string address = Resolve(host, port);

    bytes_.clear();
    too_large_ = false;
    const std::unique_ptr<CURL, FreeEasy> easy(curl_easy_init());
    const std::string pin = "::" + address + ":" + port;  // every name and port connects there
    const std::unique_ptr<curl_slist, FreeList> connect_to(curl_slist_append(nullptr, pin.c_str()));
    char reason[CURL_ERROR_SIZE] = {};
    auto set = [&](CURLoption option, auto value) { curl_easy_setopt(easy.get(), option, value); };
    set(CURLOPT_URL, text.c_str());
    set(CURLOPT_CONNECT_TO, connect_to.get());
    set(CURLOPT_PROXY, "");
    set(CURLOPT_PROTOCOLS_STR, "http,https");
    set(CURLOPT_FOLLOWLOCATION, 0L);
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_TIMEOUT_MS, static_cast<long>(MsLeft()));  // NOLINT(google-runtime-int): libcurl's type
    set(CURLOPT_USERAGENT, "quire");
    set(CURLOPT_ERRORBUFFER, reason);
    set(CURLOPT_WRITEFUNCTION, &OnBytes);
    set(CURLOPT_WRITEDATA, this);
    set(CURLOPT_NOPROGRESS, 0L);
    set(CURLOPT_XFERINFOFUNCTION, &OnProgress);
    set(CURLOPT_XFERINFODATA, this);
    const CURLcode code = curl_easy_perform(easy.get());
    if (canceled_()) throw Error(ErrorKind::kCanceled, "canceled", path_);
    if (too_large_)
      throw Error(ErrorKind::kTooLarge,
                  "wanted a picture of at most " + std::to_string(options_.max_bytes) + " bytes, found more", path_);
    if (code == CURLE_OPERATION_TIMEDOUT) MsLeft();
    if (code != CURLE_OK) throw Bad(*reason ? reason : curl_easy_strerror(code));
    long status = 0;  // NOLINT(google-runtime-int): libcurl's type
    curl_easy_getinfo(easy.get(), CURLINFO_RESPONSE_CODE, &status);
    if (status >= 300 && status < 400) {
      char* next = nullptr;
      curl_easy_getinfo(easy.get(), CURLINFO_REDIRECT_URL, &next);
      if (next) return std::string(next);
    }
    if (status != 200) throw Bad("its server answers " + std::to_string(status));
    if (bytes_.empty()) throw Bad("its server sends nothing");
    return std::nullopt;
  }

  static size_t OnBytes(const char* data, size_t /*one*/, size_t count, void* self) {
    auto& fetcher = *static_cast<Fetcher*>(self);
    if (static_cast<int64_t>(fetcher.bytes_.size() + count) > fetcher.options_.max_bytes) {
      fetcher.too_large_ = true;
      return 0;
    }
    fetcher.bytes_.insert(fetcher.bytes_.end(), data, data + count);
    return count;
  }
  static int OnProgress(void* self, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
    return static_cast<Fetcher*>(self)->canceled_() ? 1 : 0;
  }

  const RemoteOptions& options_;
  const std::string& path_;
  const std::function<bool()>& canceled_;
  Clock::time_point until_;
  std::vector<uint8_t> bytes_;
  bool too_large_ = false;
};

}  // namespace

bool IsPublicAddress(std::string_view address) {
  const std::string text(address);
  std::array<uint8_t, 4> four;
  if (inet_pton(AF_INET, text.c_str(), four.data()) == 1) return IsPublic4(four);
  std::array<uint8_t, 16> six;
  return inet_pton(AF_INET6, text.c_str(), six.data()) == 1 && IsPublic6(six);
}

RemotePictures::RemotePictures(RemoteOptions options) : options_(options) {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
}

std::vector<uint8_t> RemotePictures::Fetch(const std::string& url, const std::string& path,
                                           const std::function<bool()>& canceled) const {
  return Fetcher(options_, path, canceled).Run(url);
}

}  // namespace quire
