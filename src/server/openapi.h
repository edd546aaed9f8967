// The description of the API that the server serves (openapi.json in this folder).
#pragma once

#include <string_view>

namespace quire {

std::string_view OpenApiJson();

}  // namespace quire
