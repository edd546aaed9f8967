// Any picture file to upright RGB.
#pragma once

#include <string>
#include <vector>

#include "image/codecs/codec.h"
#include "image/picture_info.h"

namespace quire {

// Reads the header of a page (from 0). Throws Error{kBadInput, kUnsupported} when the content is no picture or damaged,
// {kTooLarge} when the page has more than max_pixels, {kNotFound} when there is no such page.
PictureInfo InspectPicture(codecs::Bytes bytes, int page, const codecs::Options& options);

// The pixels of a page as a viewer shows them: turned upright, alpha on white, the first frame of an animation, 8 bits.
// Throws as InspectPicture does; the header is checked before anything is decoded. Adds to warnings what was passed
// over.
Image DecodePicture(codecs::Bytes bytes, int page, const codecs::Options& options, std::vector<std::string>* warnings);

}  // namespace quire
