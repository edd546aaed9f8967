#include "server/keys.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <fstream>
#include <utility>

#include "base/ascii.h"
#include "base/error.h"
#include "server/http_head.h"

namespace quire {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

}  // namespace

Keys::Keys(const std::vector<std::string>& keys, std::string file) : file_(std::move(file)) {
  for (const std::string& key : keys) {
    if (Trim(key).empty()) throw Error(ErrorKind::kUsage, "wanted a key, found an empty one", "--api-key");
    fixed_.push_back(DigestOf(Trim(key)));
  }
  Reload();
}

void Keys::Reload() {
  std::vector<Digest> digests = fixed_;
  if (!file_.empty()) {
    std::ifstream in(file_);
    if (!in) throw Error(ErrorKind::kNotFound, "cannot read the file of keys", file_);
    bool first = true;
    for (std::string line; std::getline(in, line);) {
      std::string_view key = line;
      if (std::exchange(first, false) && key.starts_with(kByteOrderMark)) key.remove_prefix(kByteOrderMark.size());
      key = Trim(key);
      if (!key.empty() && key[0] != '#') digests.push_back(DigestOf(key));
    }
    if (digests.empty()) throw Error(ErrorKind::kUsage, "wanted at least one key, found none", file_);
  }
  const std::lock_guard lock(mutex_);
  digests_ = std::move(digests);
}

bool Keys::any() const {
  const std::lock_guard lock(mutex_);
  return !digests_.empty();
}

bool Keys::Allow(std::string_view authorization) const {
  constexpr std::string_view kScheme = "bearer ";
  const bool has_scheme = Lower(authorization.substr(0, kScheme.size())) == kScheme;
  const Digest digest = DigestOf(has_scheme ? Trim(authorization.substr(kScheme.size())) : std::string_view());
  const std::lock_guard lock(mutex_);
  int matches = 0;
  for (const Digest& known : digests_) matches += CRYPTO_memcmp(known.data(), digest.data(), digest.size()) == 0;
  return digests_.empty() || (has_scheme && matches > 0);
}

Keys::Digest Keys::DigestOf(std::string_view text) {
  Digest digest;
  EVP_Digest(text.data(), text.size(), digest.data(), nullptr, EVP_sha256(), nullptr);
  return digest;
}

}  // namespace quire
