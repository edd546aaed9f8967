#include "base/log.h"

#include <utility>

namespace quire {
namespace {
LogSink& Sink() {
  static LogSink sink;
  return sink;
}
}  // namespace

void SetLogSink(LogSink sink) {
  Sink() = std::move(sink);
}

void Log(LogLevel level, std::string_view text) {
  if (Sink()) Sink()(level, text);
}

}  // namespace quire
