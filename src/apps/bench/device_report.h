// The figures of one run of the device benchmark, for people and for programs.
#pragma once

#include <string>
#include <vector>

#include "apps/bench/measurement.h"
#include "backend/backend.h"

namespace quire {

struct DeviceReport {
  std::string model;  // the folder
  BackendInfo backend;
  Ceilings ceilings;
  std::string ceilings_from;  // "given", "known", "measured"
  int64_t weight_bytes = 0;   // of the files
  int64_t device_bytes = 0;   // that loading took from the device's free memory
  std::vector<double> load_s;
  std::vector<Measurement> measurements;
};

std::string ToTable(const DeviceReport& report);
Json ToJson(const DeviceReport& report);

}  // namespace quire
