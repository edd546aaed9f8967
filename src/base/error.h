// Errors: one exception type for everything that a user, a file or a device can cause.
//
// An Error is thrown where a unit of work ends and caught at three places: the command line's main, the server's
// request handler, and the page loop. A bug of ours is a QUIRE_CHECK (check.h), never an Error.
#pragma once

#include <exception>
#include <string>
#include <string_view>

namespace quire {

enum class ErrorKind {
  kUsage,        // the caller asked for something that cannot be: flag, field, range, task or mode
  kNotFound,     // a file, a model or a named thing does not exist
  kBadInput,     // a picture or document that cannot be read
  kTooLarge,     // a stated limit is passed: pixels, bytes, tokens, context
  kBadModel,     // a checkpoint, config or tokenizer is damaged, incomplete or of an unknown kind
  kUnsupported,  // understood, but not built in or not possible on this device
  kOutOfMemory,  // host or device memory does not suffice
  kIo,           // the system refused to read or write
  kCanceled,     // the caller went away
  kDeadline,     // the request's time limit passed
  kBusy,         // a queue is full; trying later may work
  kDeviceLost,   // the device stopped; running work failed
  kInternal,     // a bug, caught at a border
};

struct ErrorKindInfo {
  ErrorKind kind;
  std::string_view name;  // as printed and as in JSON: "bad_input"
  int exit_code;          // of the command line
  int http_status;        // of the server
};

// The one table from kind to name, exit code and HTTP status.
const ErrorKindInfo& Info(ErrorKind kind);

class Error : public std::exception {
 public:
  // what: what was wanted and what was found, one sentence without a full stop at its end.
  // where: the file, tensor, field or page it is about; may be empty.
  // hint: the next step for the user; may be empty.
  Error(ErrorKind kind, std::string what, std::string where = {}, std::string hint = {});

  ErrorKind kind() const { return kind_; }
  const std::string& message() const { return what_; }
  const std::string& where() const { return where_; }
  const std::string& hint() const { return hint_; }
  const std::string& text() const { return text_; }  // "where: what (hint)"
  const char* what() const noexcept override { return text_.c_str(); }

  // The same error about a larger thing: "page 3: " before where.
  Error Within(std::string_view outer) const;

 private:
  ErrorKind kind_;
  std::string what_, where_, hint_, text_;
};

// The exception that is being handled, as an Error: kOutOfMemory for std::bad_alloc, kInternal for one that is no
// Error.
Error CurrentError();

}  // namespace quire
