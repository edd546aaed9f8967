#include "image/codecs/color.h"

#include <lcms2.h>

namespace quire::codecs {

void LayOnWhite(const uint8_t* rgba, size_t pixels, uint8_t* rgb) {
  for (size_t i = 0; i < pixels; ++i, rgba += 4, rgb += 3)
    for (int channel = 0; channel < 3; ++channel) rgb[channel] = OnWhite(rgba[channel], rgba[3]);
}

CmykToRgb::CmykToRgb(Bytes profile, bool inverted) : inverted_(inverted) {
  if (profile.empty()) return;
  cmsSetLogErrorHandler([](cmsContext, cmsUInt32Number, const char*) {});
  cmsHPROFILE source = cmsOpenProfileFromMem(profile.data(), static_cast<cmsUInt32Number>(profile.size()));
  if (source == nullptr) return;
  if (cmsGetColorSpace(source) == cmsSigCmykData) {
    cmsHPROFILE target = cmsCreate_sRGBProfile();
    transform_ = cmsCreateTransform(source, inverted ? TYPE_CMYK_8_REV : TYPE_CMYK_8, target, TYPE_RGB_8,
                                    INTENT_PERCEPTUAL, cmsFLAGS_NOCACHE);
    cmsCloseProfile(target);
  }
  cmsCloseProfile(source);
}

CmykToRgb::~CmykToRgb() {
  if (transform_ != nullptr) cmsDeleteTransform(transform_);
}

void CmykToRgb::Convert(const uint8_t* cmyk, size_t pixels, uint8_t* rgb) const {
  if (transform_ != nullptr) {
    cmsDoTransform(transform_, cmyk, rgb, static_cast<cmsUInt32Number>(pixels));
    return;
  }
  const uint8_t flip = inverted_ ? 255 : 0;
  for (size_t i = 0; i < pixels; ++i, cmyk += 4, rgb += 3) {
    const uint8_t light = static_cast<uint8_t>(255 - (cmyk[3] ^ flip));
    for (int channel = 0; channel < 3; ++channel)
      rgb[channel] = static_cast<uint8_t>(light - Times(cmyk[channel] ^ flip, light));
  }
}

}  // namespace quire::codecs
