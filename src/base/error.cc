#include "base/error.h"

#include <array>
#include <new>
#include <utility>

namespace quire {
namespace {

constexpr std::array<ErrorKindInfo, 13> kKinds = {{
    {ErrorKind::kUsage, "usage", 2, 400},
    {ErrorKind::kNotFound, "not_found", 4, 404},
    {ErrorKind::kBadInput, "bad_input", 5, 400},
    {ErrorKind::kTooLarge, "too_large", 6, 413},
    {ErrorKind::kBadModel, "bad_model", 7, 500},
    {ErrorKind::kUnsupported, "unsupported", 8, 501},
    {ErrorKind::kOutOfMemory, "out_of_memory", 9, 507},
    {ErrorKind::kIo, "io", 10, 500},
    {ErrorKind::kCanceled, "canceled", 11, 499},
    {ErrorKind::kDeadline, "deadline", 12, 504},
    {ErrorKind::kBusy, "busy", 13, 429},
    {ErrorKind::kDeviceLost, "device_lost", 75, 503},
    {ErrorKind::kInternal, "internal", 70, 500},
}};

}  // namespace

const ErrorKindInfo& Info(ErrorKind kind) {
  return kKinds[static_cast<size_t>(kind)];
}

Error::Error(ErrorKind kind, std::string what, std::string where, std::string hint)
    : kind_(kind), what_(std::move(what)), where_(std::move(where)), hint_(std::move(hint)) {
  if (!where_.empty()) text_ = where_ + ": ";
  text_ += what_;
  if (!hint_.empty()) text_ += " (" + hint_ + ")";
}

Error Error::Within(std::string_view outer) const {
  return {kind_, what_, where_.empty() ? std::string(outer) : std::string(outer) + ": " + where_, hint_};
}

Error CurrentError() {
  try {
    throw;
  } catch (const Error& error) {
    return error;
  } catch (const std::bad_alloc&) {
    return Error(ErrorKind::kOutOfMemory, "host memory does not suffice");
  } catch (const std::exception& error) {
    return Error(ErrorKind::kInternal, error.what());
  }
}

}  // namespace quire
