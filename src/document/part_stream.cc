#include "document/part_stream.h"

#include <algorithm>
#include <utility>

namespace quire {

PartStream::PartStream(std::shared_ptr<Ticket> ticket, const Tokenizer& tokenizer, std::vector<int32_t> quiet,
                       std::optional<int> limit)
    : ticket_(std::move(ticket)), limit_(limit), decoder_(tokenizer, std::move(quiet)) {}

std::optional<Event> PartStream::NextWithin(std::chrono::milliseconds wait) {
  if (ready_.empty()) {
    std::optional<Event> event = ticket_->NextWithin(wait);
    if (!event) return std::nullopt;
    if (auto* token = std::get_if<TokenEvent>(&*event)) {
      Take(std::move(*token));
    } else if (auto* end = std::get_if<EndEvent>(&*event)) {
      Take(std::move(*end));
    } else {
      ready_.push_back(std::move(*event));
    }
  }
  if (ready_.empty()) return std::nullopt;
  Event first = std::move(ready_.front());
  ready_.pop_front();
  return first;
}

void PartStream::Take(TokenEvent token) {
  if (spent()) {
    cut_ = true;
    ticket_->Cancel();
    return;
  }
  ++tokens_;
  confidence_.Push(token.logprob);
  given_bytes_ += token.text.size();
  const size_t begin = written_bytes_;
  token.text = decoder_.Push(token.id);
  written_bytes_ += token.text.size();
  pending_.push_back({std::move(token), begin});
  // One that completes nothing waits for the character that it is a part of.
  while (!pending_.empty() &&
         given_bytes_ >= pending_.front().begin + std::max<size_t>(1, pending_.front().token.text.size()))
    GiveFirst();
}

void PartStream::Take(EndEvent end) {
  given_bytes_ += end.text.size();
  // With the limit as max_tokens the engine ends at the last token, before it knows whether the end token comes.
  const bool at_limit = cut_ || (spent() && end.reason != EndReason::kLoop && end.stop.empty());
  if (at_limit) {
    end.reason = EndReason::kLength;
    end.detail.clear();
    end.stop.clear();
    end.error.reset();
    end.usage.output_tokens = tokens_;
    end.usage.max_tokens = *limit_;
    end.confidence = confidence_.result();
  }
  end.text.clear();
  if (end.stop.empty()) {
    while (!pending_.empty()) GiveFirst();
    end.text = decoder_.Finish();
  }
  while (!pending_.empty() && pending_.front().begin < given_bytes_) {
    TokenEvent& token = pending_.front().token;
    token.text.resize(std::min(token.text.size(), given_bytes_ - pending_.front().begin));
    GiveFirst();
  }
  pending_.clear();
  ready_.emplace_back(std::move(end));
}

void PartStream::GiveFirst() {
  ready_.emplace_back(std::move(pending_.front().token));
  pending_.pop_front();
}

}  // namespace quire
