// What a request's events were, for tests.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <variant>
#include <vector>

#include "engine/ticket.h"

namespace quire {

inline void PrintTo(EndReason reason, std::ostream* out) {
  *out << Name(reason);
}

struct Reading {
  std::vector<int32_t> ids;
  std::vector<float> logprobs;
  std::vector<std::vector<std::pair<int32_t, float>>> top;
  std::vector<std::string> pieces;  // of text: a token's each, then the end's
  std::vector<StageEvent> stages;
  EndEvent end;

  std::string text() const {
    std::string text;
    for (const std::string& piece : pieces) text += piece;
    return text;
  }
  void Add(const TokenEvent& token) {
    ids.push_back(token.id);
    logprobs.push_back(token.logprob);
    top.push_back(token.top);
    pieces.push_back(token.text);
  }
};

// Takes events into *reading until `count` tokens are there; false when the end came before.
inline bool ReadTokens(Ticket& ticket, size_t count, Reading* reading) {
  while (reading->ids.size() < count) {
    Event event = ticket.Next();
    if (const auto* stage = std::get_if<StageEvent>(&event)) reading->stages.push_back(*stage);
    if (const auto* token = std::get_if<TokenEvent>(&event)) reading->Add(*token);
    if (auto* end = std::get_if<EndEvent>(&event)) {
      reading->pieces.push_back(end->text);
      reading->end = std::move(*end);
      return false;
    }
  }
  return true;
}

// Takes the events that are left.
inline void ReadToEnd(Ticket& ticket, Reading* reading) {
  ReadTokens(ticket, SIZE_MAX, reading);
}
inline Reading ReadToEnd(Ticket& ticket) {
  Reading reading;
  ReadToEnd(ticket, &reading);
  return reading;
}

}  // namespace quire
