#include "model/cost.h"

#include <algorithm>
#include <cmath>

namespace quire {
namespace {

// Weights and rows of one product.
Work Product(double rows, double k, double n, double bytes_per_weight) {
  return {2 * rows * k * n, k * n * bytes_per_weight};
}

// rows queries against keys, both of width `width` over all heads.
Work Attention(double rows, double keys, double width) {
  return {4 * rows * keys * width, 0};
}

Work SamWork(const SamConfig& c, int side_px, double b) {
  const double grid = side_px / c.patch_px, tokens = grid * grid;
  const double windows = (grid + c.window - 1) / c.window, padded = windows * windows * c.window * c.window;
  Work work = Product(tokens, 3.0 * c.patch_px * c.patch_px, c.width, b);
  for (int i = 0; i < c.layers; ++i) {
    const bool global = std::ranges::count(c.global_layers, i) > 0;
    work += Product(tokens, c.width, 4.0 * c.width, b);
    work += Product(tokens, c.width, 2.0 * c.mlp, b);
    work += global ? Attention(tokens, tokens, c.width) : Attention(padded, c.window * c.window, c.width);
  }
  work += Product(tokens, c.width, c.neck, b);
  work += Product(tokens, 9.0 * c.neck, c.neck, b);
  work += Product(tokens / 4, 9.0 * c.neck, c.net2, b);
  work += Product(tokens / 16, 9.0 * c.net2, c.out, b);
  return work;
}

Work EncoderWork(const EncoderConfig& c, double features, double b) {
  const double rows = 2 * features, q = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim;
  Work layer = Product(rows, c.hidden, 2 * q + 2 * kv, b);
  layer += Product(rows, c.hidden, 3.0 * c.ffn, b);
  layer += Attention(rows, 1.5 * features, q);
  Work work;
  for (int i = 0; i < c.layers; ++i) work += layer;
  return work;
}

// rows that each see so many keys; `hits` of a layer's experts are read, and the head gives so many rows of logits.
Work LmWork(const LmConfig& c, double rows, double keys, double logits_rows, double hits, double b) {
  const double q = c.heads * c.head_dim, expert = 3.0 * c.hidden * c.moe_ffn;
  Work work;
  for (int i = 0; i < c.layers; ++i) {
    work += Product(rows, c.hidden, 4 * q, b);
    work += Attention(rows, keys, q);
    if (i < c.dense_layers) {
      work += Product(rows, c.hidden, 3.0 * c.dense_ffn, b);
    } else {
      work += Product(rows, c.hidden, 3.0 * c.shared_experts * c.moe_ffn, b);
      work += {2 * rows * c.experts_per_token * expert, hits * expert * b};
    }
  }
  return work += Product(logits_rows, c.hidden, c.vocab, b);
}

}  // namespace

Work ViewWork(const ModelConfig& config, int side_px, double b) {
  const double side = FeaturesPerSide(config.geometry, side_px), features = side * side;
  Work work = SamWork(config.sam, side_px, b);
  if (config.encoder) work += EncoderWork(*config.encoder, features, b);
  work += Product(features, config.projector_in, config.projector_out, b);
  return work;
}

Work PageWork(const ModelConfig& config, const PagePlan& plan, double b) {
  Work work;
  for (const ViewPlan& view : plan.views) work += ViewWork(config, view.side_px, b);
  return work;
}

Work PrefillWork(const ModelConfig& config, int tokens, double b) {
  const double n = tokens;
  return LmWork(config.lm, n, n / 2, 1, std::min<double>(config.lm.experts, n * config.lm.experts_per_token), b);
}

Work TokenWork(const ModelConfig& config, double b) {
  return PrefillWork(config, 1, b);
}

Work DecodeWork(const ModelConfig& config, int sequences, double context_tokens, double b) {
  const LmConfig& c = config.lm;
  Work work = LmWork(c, sequences, context_tokens, sequences, ExpectedExperts(c, sequences), b);
  work.cache_bytes = sequences * context_tokens * c.layers * 2.0 * c.kv_heads * c.head_dim * b;
  return work;
}

double ExpectedExperts(const LmConfig& c, int rows) {
  return c.experts * (1 - std::pow(1 - static_cast<double>(c.experts_per_token) / c.experts, rows));
}

}  // namespace quire
