#include "apps/bench/device_report.h"

#include "apps/bench/print.h"

namespace quire {
namespace {

std::string Line(const Measurement& m) {
  if (!m.error.empty()) return Print("%-30s %s\n", m.name.c_str(), m.error.c_str());
  const double s = m.median_s();
  std::string line = Print("%-30s %10.3f ms %12.1f %s/s   floor %10.3f ms %12.1f %s/s %5.0f%%", m.name.c_str(),
                           1000 * s / m.steps, m.items / s, m.unit.c_str(), 1000 * m.floor_s / m.steps,
                           m.items / m.floor_s, m.unit.c_str(), 100 * m.floor_s / s);
  if (const Json* hit = m.details.Find("experts_hit"))
    line += Print("   experts %.1f of expected %.1f", hit->as_double(), m.details.At("experts_expected").as_double());
  return line + "\n";
}

Json ToJson(const Measurement& m) {
  Json json;
  json.Set("name", m.name);
  if (!m.error.empty()) {
    json.Set("error", m.error);
    return json;
  }
  const double s = m.median_s();
  json.Set("unit", m.unit + "/s");
  json.Set("rate", m.items / s);
  json.Set("ms", 1000 * s / m.steps);
  json.Set("floor_rate", m.items / m.floor_s);
  json.Set("floor_ms", 1000 * m.floor_s / m.steps);
  json.Set("steps", m.steps);
  Json& rounds = json.Set("rounds_ms", Json::Array{});
  for (const double round : m.seconds) rounds.Add(1000 * round / m.steps);
  if (!m.details.is_null()) json.Set("details", m.details);
  return json;
}

}  // namespace

std::string ToTable(const DeviceReport& r) {
  std::string table = Print("%s: %s, %s, %s\n", r.model.c_str(), r.backend.name.c_str(), r.backend.device.c_str(),
                            std::string(Name(r.backend.dtype)).c_str());
  table += Print("ceilings (%s): %.1f GB/s, %.1f TFLOP/s\n", r.ceilings_from.c_str(), r.ceilings.read_bytes_per_s / 1e9,
                 r.ceilings.product_flops / 1e12);
  table += Print("%-30s %10.3f ms, again %.3f ms; files %.3f GB, on the device %.3f GB\n", "load",
                 1000 * r.load_s.front(), 1000 * r.load_s.back(), static_cast<double>(r.weight_bytes) / 1e9,
                 static_cast<double>(r.device_bytes) / 1e9);
  for (const Measurement& m : r.measurements) table += Line(m);
  return table;
}

Json ToJson(const DeviceReport& r) {
  Json json;
  json.Set("model", r.model);
  Json device;
  device.Set("backend", r.backend.name);
  device.Set("name", r.backend.device);
  device.Set("dtype", Name(r.backend.dtype));
  device.Set("threads", r.backend.threads);
  json.Set("device", device);
  Json ceilings;
  ceilings.Set("from", r.ceilings_from);
  ceilings.Set("bytes_per_s", r.ceilings.read_bytes_per_s);
  ceilings.Set("flops", r.ceilings.product_flops);
  json.Set("ceilings", ceilings);
  Json load;
  Json& rounds = load.Set("rounds_ms", Json::Array{});
  for (const double round : r.load_s) rounds.Add(1000 * round);
  load.Set("file_bytes", r.weight_bytes);
  load.Set("device_bytes", r.device_bytes);
  json.Set("load", load);
  Json& measurements = json.Set("measurements", Json::Array{});
  for (const Measurement& m : r.measurements) measurements.Add(ToJson(m));
  return json;
}

}  // namespace quire
