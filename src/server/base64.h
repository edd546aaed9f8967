// Base64 (RFC 4648, section 4).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

// Blanks and line breaks are passed over, padding may be missing; nothing for anything else that is not base64.
std::optional<std::vector<uint8_t>> DecodeBase64(std::string_view text);
std::string EncodeBase64(std::span<const uint8_t> bytes);

}  // namespace quire
