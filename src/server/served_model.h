// The model that a server serves, and what its requests are held against.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "document/session.h"
#include "image/decoder_client.h"

namespace quire {

struct ServedModel {
  std::unique_ptr<Session> session;
  std::vector<std::string> names;  // that requests may use; the first is the one that replies give
  int64_t created = 0;             // seconds since 1970, when it was loaded

  const PageReader& reader() const { return session->reader(); }
  // The name that a reply gives to a request for `named`; empty: none was named. Throws ApiError 404 with the names
  // there are.
  const std::string& NameFor(std::string_view named) const;
};

// Throws Error{kUsage} for a context in which not even the smallest page can be read.
void CheckContext(const ServedModel& model);

// What both answers of GET /v1/models say of one name.
class Json;
Json DescribeModel(const ServedModel& model, const std::string& name);

}  // namespace quire
