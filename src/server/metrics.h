// What the server counts, as Prometheus reads it (docs/api.md, "Metrics").
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "document/page_record.h"
#include "engine/engine.h"

namespace quire {

// Any thread.
class Metrics {
 public:
  Metrics();
  ~Metrics();

  void CountRequest(std::string_view endpoint, int status);
  void CountError(std::string_view kind);
  void CountPage(const PageRecord& record);  // without its error: what becomes of that, the reply says
  void ObserveFirstToken(double seconds);
  void SetBuild(std::string_view version, std::string_view model, std::string_view dtype, std::string_view device);

  struct Levels {
    size_t waiting = 0, running = 0;  // requests
    int connections = 0;
  };
  // The text of GET /metrics. engine: none while it loads.
  std::string Text(const Levels& levels, const EngineStats* engine);

 private:
  struct Families;
  std::unique_ptr<Families> families_;
};

}  // namespace quire
