// Fetching pictures that a request names by URL, where the server allows it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

struct RemoteOptions {
  int64_t max_bytes = 64 << 20;
  std::chrono::milliseconds timeout{15'000};  // of all hops together
  int max_hops = 3;                           // redirects
  bool allow_private = false;                 // tests: also loopback and private addresses
};

// Any thread. Each hop: http or https only, ports 80 and 443 and above 1023, the name resolved here, every address it
// has held against the ranges that are not the public net (loopback, private, link-local, shared, metadata, multicast,
// documentation, IPv4 inside IPv6), and the connection made to the address that was checked.
class RemotePictures {
 public:
  explicit RemotePictures(RemoteOptions options);

  // path: of the field, for errors. Throws Error{kUsage} for a URL that may not be fetched, {kTooLarge}, {kDeadline},
  // {kBadInput} for what a server of the net does wrong, {kCanceled}.
  std::vector<uint8_t> Fetch(const std::string& url, const std::string& path,
                             const std::function<bool()>& canceled) const;

 private:
  RemoteOptions options_;
};

// Whether an address, as text, is of the public net.
bool IsPublicAddress(std::string_view address);

}  // namespace quire
