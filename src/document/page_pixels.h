// A picture's views as its plan says: the image floor's hands, the model's head.
#pragma once

#include <memory>

#include "engine/request.h"
#include "image/image.h"
#include "model/view_plan.h"

namespace quire {

// One view of the plan as an 8-bit picture: what the published preprocessing gives, byte for byte.
Image RenderView(const Image& picture, const ViewPlan& view);

// All views of a picture, with their key.
std::shared_ptr<const PagePixels> MakePagePixels(const Image& picture, PagePlan plan);

}  // namespace quire
