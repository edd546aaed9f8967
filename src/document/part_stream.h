// The events of one part of a page, made fit for the page's answer.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/confidence.h"
#include "engine/ticket.h"
#include "tokenizer/stream_decoder.h"

namespace quire {

// What a ticket gives, with two differences:
// * As if the request's max_tokens had been `limit`, which may be smaller: parts are submitted before it is known what
//   those in front of them leave. The limit is at least 1; none: the request's own.
// * Text comes with the tokens that it is made of, and a token only when all of its text belongs to the answer. Of the
//   tokens that a stop string cuts, the one that has text before it comes last, with that text. EndEvent::text is
//   what is left of an unfinished character.
// One thread. The tokenizer outlives it.
class PartStream {
 public:
  // quiet: QuietIds of the model.
  PartStream(std::shared_ptr<Ticket> ticket, const Tokenizer& tokenizer, std::vector<int32_t> quiet,
             std::optional<int> limit);

  // The next event; none when there is none within `wait`. After EndEvent not to be called again.
  std::optional<Event> NextWithin(std::chrono::milliseconds wait);
  void Cancel() { ticket_->Cancel(); }

 private:
  // A token whose text is not known to be in the answer. text: all that it completes.
  struct Pending {
    TokenEvent token;
    size_t begin;  // bytes of the part's text before it
  };

  void Take(TokenEvent token);
  void Take(EndEvent end);
  void GiveFirst();
  bool spent() const { return limit_ && tokens_ == *limit_; }

  const std::shared_ptr<Ticket> ticket_;
  const std::optional<int> limit_;
  StreamDecoder decoder_;
  ConfidenceMeter confidence_;
  int tokens_ = 0;
  bool cut_ = false;          // a token came that is past the limit
  size_t written_bytes_ = 0;  // of text, by the tokens so far
  size_t given_bytes_ = 0;    // of it, by the engine: the rest may be a stop string
  std::deque<Pending> pending_;
  std::deque<Event> ready_;
};

}  // namespace quire
