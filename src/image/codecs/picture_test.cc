#include "image/codecs/picture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lcms2.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>

#include "base/mmap_file.h"
#include "image/codecs/orientation.h"
#include "image/strips.h"

namespace quire {
namespace {

using codecs::Bytes;

std::vector<uint8_t> ReadPicture(const std::string& name) {
  const std::string text = ReadFile(QUIRE_SOURCE_DIR "/tests/data/image/pictures/" + name);
  return {text.begin(), text.end()};
}

struct Case {
  std::string file;
  int page;
  std::string format;
  int orientation, tolerance;
  std::string wanted;
};

// Written by tools/make_picture_references.py.
std::vector<Case> ReadCases() {
  std::ifstream file(QUIRE_SOURCE_DIR "/tests/data/image/pictures/cases.txt");
  std::vector<Case> cases;
  for (Case c; file >> c.file >> c.page >> c.format >> c.orientation >> c.tolerance >> c.wanted;) cases.push_back(c);
  return cases;
}

Image Decode(Bytes bytes, int page = 0, const codecs::Options& options = {}) {
  std::vector<std::string> warnings;
  Image image = DecodePicture(bytes, page, options, &warnings);
  EXPECT_THAT(warnings, testing::IsEmpty());
  return image;
}

int LargestDifference(const Image& a, const Image& b) {
  int largest = 0;
  for (size_t i = 0; i < a.rgb.size(); ++i) largest = std::max(largest, std::abs(a.rgb[i] - b.rgb[i]));
  return largest;
}

TEST(Picture, EveryFormatGivesTheWantedPixels) {
  const std::vector<Case> cases = ReadCases();
  EXPECT_GT(cases.size(), 90);
  for (const Case& c : cases) {
    SCOPED_TRACE(c.file + " page " + std::to_string(c.page));
    const std::vector<uint8_t> bytes = ReadPicture(c.file);
    const Image wanted = Decode(ReadPicture(c.wanted));
    const PictureInfo info = InspectPicture(bytes, c.page, {});
    EXPECT_EQ(info.format, c.format);
    EXPECT_EQ(info.orientation, c.orientation);
    EXPECT_EQ(info.pages, c.file == "pages.tif" ? 3 : 1);
    EXPECT_EQ(info.width_px, wanted.width_px);
    EXPECT_EQ(info.height_px, wanted.height_px);
    const Image found = Decode(bytes, c.page);
    ASSERT_EQ(found.width_px, wanted.width_px);
    ASSERT_EQ(found.height_px, wanted.height_px);
    EXPECT_LE(LargestDifference(found, wanted), c.tolerance);
  }
}

ErrorKind KindOfFailure(Bytes bytes, int page = 0, const codecs::Options& options = {}) {
  std::vector<std::string> warnings;
  try {
    DecodePicture(bytes, page, options, &warnings);
  } catch (const Error& error) {
    EXPECT_FALSE(error.message().empty());
    return error.kind();
  }
  return ErrorKind::kInternal;  // nothing was thrown
}

std::vector<uint8_t> FromText(std::string_view text) {
  return {text.begin(), text.end()};
}

TEST(Picture, WhatIsNoPictureIsNamedSo) {
  EXPECT_EQ(KindOfFailure({}), ErrorKind::kBadInput);
  EXPECT_EQ(KindOfFailure(FromText("Dear Sir,\nno picture")), ErrorKind::kUnsupported);
  EXPECT_EQ(KindOfFailure(FromText("%PDF-1.7\n")), ErrorKind::kUnsupported);
  EXPECT_EQ(KindOfFailure(ReadPicture("rgb.png"), 1), ErrorKind::kNotFound);
  EXPECT_EQ(KindOfFailure(ReadPicture("pages.tif"), 3), ErrorKind::kNotFound);
  EXPECT_EQ(KindOfFailure(ReadPicture("pages.tif"), -1), ErrorKind::kNotFound);
}

TEST(Picture, ThePixelLimitIsCheckedOnTheHeader) {
  for (const Case& c : ReadCases()) {
    const Image wanted = Decode(ReadPicture(c.wanted));
    const int64_t pixels = int64_t{wanted.width_px} * wanted.height_px;
    EXPECT_EQ(KindOfFailure(ReadPicture(c.file), c.page, {.max_pixels = pixels - 1}), ErrorKind::kTooLarge) << c.file;
    if (c.format != "heif")
      EXPECT_EQ(KindOfFailure(ReadPicture(c.file), c.page, {.max_pixels = pixels}), ErrorKind::kInternal) << c.file;
  }
  // Headers alone, of pictures far beyond any memory.
  EXPECT_EQ(KindOfFailure(FromText("P6 2000000000 2000000000 255\n")), ErrorKind::kTooLarge);
  std::vector<uint8_t> png = ReadPicture("rgb.png");
  png[16] = png[20] = 0x7F;  // the checksum is wrong now, which libpng tells first
  EXPECT_EQ(KindOfFailure(png), ErrorKind::kBadInput);
  std::vector<uint8_t> bmp = ReadPicture("rgb.bmp");
  bmp[21] = bmp[25] = 0x70;
  EXPECT_EQ(KindOfFailure(bmp), ErrorKind::kTooLarge);
  std::vector<uint8_t> gif = ReadPicture("plain.gif");
  gif[7] = gif[9] = 0xFF;
  EXPECT_EQ(KindOfFailure(gif), ErrorKind::kTooLarge);
}

// A picture cut off anywhere ends in an Error or, for the lenient codecs, in pixels with a warning.
TEST(Picture, CutOffFilesAreToldSo) {
  for (const Case& c : ReadCases()) {
    const std::vector<uint8_t> bytes = ReadPicture(c.file);
    for (size_t size = 0; size < bytes.size(); size += 1 + bytes.size() / 40) {
      std::vector<std::string> warnings;
      try {
        DecodePicture(Bytes(bytes).first(size), c.page, {}, &warnings);
        if (c.format == "jpeg" && size + 40 < bytes.size()) EXPECT_FALSE(warnings.empty()) << c.file << " " << size;
      } catch (const Error& error) {
        EXPECT_NE(error.kind(), ErrorKind::kInternal);
      }
    }
  }
  const std::vector<uint8_t> jpeg = ReadPicture("baseline.jpg");
  std::vector<std::string> warnings;
  EXPECT_EQ(DecodePicture(Bytes(jpeg).first(jpeg.size() * 3 / 4), 0, {}, &warnings).width_px, 29);
  EXPECT_THAT(warnings, testing::ElementsAre(testing::HasSubstr("damaged")));
  const std::vector<uint8_t> gif = ReadPicture("plain.gif");
  warnings.clear();
  DecodePicture(Bytes(gif).first(gif.size() * 3 / 4), 0, {}, &warnings);
  EXPECT_THAT(warnings, testing::ElementsAre(testing::HasSubstr("of 551 pixels")));
  for (const char* name : {"rgb.png", "raw.tif", "lossless.webp", "rgb.bmp", "grey.pgm", "lossless.jp2", "flat.heic"}) {
    const std::vector<uint8_t> bytes = ReadPicture(name);
    EXPECT_EQ(KindOfFailure(Bytes(bytes).first(bytes.size() * 3 / 4)), ErrorKind::kBadInput) << name;
  }
}

// Files with bytes changed at random: an Error or pixels, never a crash.
TEST(Picture, DamagedFilesDoNoHarm) {
  uint32_t random = 3;
  const auto next = [&random](size_t below) {
    random = random * 1664525 + 1013904223;
    return (random >> 8) % below;
  };
  const codecs::Options options{.max_pixels = 1 << 20};
  int failed = 0;
  for (const Case& c : ReadCases()) {
    const std::vector<uint8_t> good = ReadPicture(c.file);
    for (int round = 0; round < 30; ++round) {
      std::vector<uint8_t> bytes = good;
      for (int i = 0; i <= round % 4; ++i) bytes[next(bytes.size())] = static_cast<uint8_t>(next(256));
      std::vector<std::string> warnings;
      try {
        DecodePicture(bytes, c.page, options, &warnings);
      } catch (const Error& error) {
        ++failed;
        EXPECT_NE(error.kind(), ErrorKind::kInternal);
      }
    }
  }
  EXPECT_GT(failed, 100);
}

TEST(Orientation, ExifIsReadInBothByteOrders) {
  EXPECT_EQ(codecs::ExifOrientation(FromText({"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0", 22})), 6);
  EXPECT_EQ(codecs::ExifOrientation(FromText({"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x08\0\0", 22})), 8);
  EXPECT_EQ(codecs::ExifOrientation(FromText({"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x04\0\0\0\x01\0\0\0\x03", 28})),
            3);
  EXPECT_EQ(codecs::ExifOrientation(FromText({"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x09\0\0\0", 22})), 1);
  EXPECT_EQ(codecs::ExifOrientation(FromText({"II*\0\xFF\xFF\xFF\xFF", 8})), 1);
  EXPECT_EQ(codecs::ExifOrientation(FromText("XX")), 1);
  EXPECT_EQ(codecs::ExifOrientation({}), 1);
}

// A CMYK profile that turns every ink into the same light grey: Lab (90, 0, 0).
std::vector<uint8_t> GreyCmykProfile() {
  cmsHPROFILE profile = cmsCreateProfilePlaceholder(nullptr);
  cmsSetProfileVersion(profile, 4.2);
  cmsSetDeviceClass(profile, cmsSigOutputClass);
  cmsSetColorSpace(profile, cmsSigCmykData);
  cmsSetPCS(profile, cmsSigLabData);
  // Version 4 wants curves around the table.
  std::array<cmsToneCurve*, 4> curves;
  for (cmsToneCurve*& curve : curves) curve = cmsBuildGamma(nullptr, 1);
  std::vector<cmsUInt16Number> table;
  for (int i = 0; i < 16; ++i) table.insert(table.end(), {58982, 32896, 32896});
  cmsPipeline* pipeline = cmsPipelineAlloc(nullptr, 4, 3);
  cmsPipelineInsertStage(pipeline, cmsAT_END, cmsStageAllocToneCurves(nullptr, 4, curves.data()));
  cmsPipelineInsertStage(pipeline, cmsAT_END, cmsStageAllocCLut16bit(nullptr, 2, 4, 3, table.data()));
  cmsPipelineInsertStage(pipeline, cmsAT_END, cmsStageAllocToneCurves(nullptr, 3, curves.data()));
  for (cmsToneCurve* curve : curves) cmsFreeToneCurve(curve);
  cmsWriteTag(profile, cmsSigAToB0Tag, pipeline);
  cmsPipelineFree(pipeline);
  cmsUInt32Number size = 0;
  cmsSaveProfileToMem(profile, nullptr, &size);
  std::vector<uint8_t> bytes(size);
  cmsSaveProfileToMem(profile, bytes.data(), &size);
  cmsCloseProfile(profile);
  return bytes;
}

TEST(Color, CmykGoesThroughThePicturesProfileUnlessRaw) {
  const std::vector<uint8_t> profile = GreyCmykProfile();
  ASSERT_GT(profile.size(), 128);
  std::vector<uint8_t> marker = FromText({"\xFF\xE2\0\0ICC_PROFILE\0\1\1", 18});
  marker.insert(marker.end(), profile.begin(), profile.end());
  marker[2] = static_cast<uint8_t>((marker.size() - 2) >> 8);
  marker[3] = static_cast<uint8_t>(marker.size() - 2);
  const std::vector<uint8_t> plain = ReadPicture("cmyk.jpg");
  std::vector<uint8_t> jpeg = plain;
  jpeg.insert(jpeg.begin() + 2, marker.begin(), marker.end());

  const Image raw = Decode(plain);
  EXPECT_EQ(Decode(jpeg, 0, {.raw_color = true}).rgb, raw.rgb);
  const Image by_profile = Decode(jpeg);
  for (size_t i = 0; i < raw.rgb.size(); i += 3) {
    const bool light = *std::max_element(raw.rgb.begin() + i, raw.rgb.begin() + i + 3) > 128;
    if (light) continue;  // lcms keeps paper white whatever the profile says
    for (size_t channel = 0; channel < 3; ++channel) ASSERT_NEAR(by_profile.rgb[i + channel], 226, 2);  // L = 90
  }
}

// The sample page in 11 pt: 40 lines and two kinds of headings, cut between its blocks.
TEST(Picture, TheSamplePageIsCutIntoReadableStrips) {
  const std::string text = ReadFile(QUIRE_SOURCE_DIR "/samples/a4-11pt.png");
  const std::vector<Strip> strips = PlanStrips(Decode(FromText(text)), {});
  EXPECT_EQ(strips.size(), 4);
  for (const Strip& strip : strips) {
    EXPECT_NEAR(strip.text_px, 22, 2);
    EXPECT_TRUE(strip.readable);
    EXPECT_TRUE(strip.starts_block);
    EXPECT_FALSE(strip.overlaps_previous);
    EXPECT_LT(strip.rect.width_px, 1000);  // without the margins
  }
}

}  // namespace
}  // namespace quire
