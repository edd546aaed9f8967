// Notes from the library to whoever runs it. The library itself prints nothing: a program sets a sink.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace quire {

enum class LogLevel { kInfo, kWarning };

using LogSink = std::function<void(LogLevel, std::string_view)>;

// Sets where notes go (default: nowhere). Not to be called while other threads log; the sink may be called from any.
void SetLogSink(LogSink sink);
void Log(LogLevel level, std::string_view text);

}  // namespace quire
