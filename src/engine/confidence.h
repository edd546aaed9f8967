// Whether the model believes what it wrote.
#pragma once

namespace quire {

struct Confidence {
  int tokens = 0;
  int improbable = 0;  // tokens with p below 0.5 (GuardTable::improbable_below)
  double sum_logprob = 0;

  double improbable_share() const { return tokens > 0 ? static_cast<double>(improbable) / tokens : 0; }
  double mean_logprob() const { return tokens > 0 ? sum_logprob / tokens : 0; }
  // So many tokens are improbable that the text is likely invented. The thresholds are in GuardTable.
  bool doubtful() const;
};

// Counts over the tokens of one page. One thread at a time.
class ConfidenceMeter {
 public:
  // logprob: natural log of the softmax of the raw logits (Sample::logprob).
  void Push(float logprob);
  const Confidence& result() const { return confidence_; }

 private:
  Confidence confidence_;
};

}  // namespace quire
