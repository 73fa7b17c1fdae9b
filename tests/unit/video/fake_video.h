// The rules that a lying process breaks, one each.
#pragma once

namespace tessera {

enum class Lie : int {
  kNone = 1,
  kOtherHello,
  // Descriptions.
  kHugeInfo,
  kNoSize,
  kFastInfo,
  kNoTick,
  kOddTurn,
  kOtherContainer,
  kLongInfo,
  // Frames.
  kOtherSize,
  kHugeFrame,
  kShortFrame,
  kSameTime,
  kOtherAnswer,
  kHugeNeed,
  kHugeError,
  kOtherError,
  kUnasked,
  kEndlessNeeds,
  kSilence,
  kTrickle,
  // Lists of times.
  kTimesBack,
  kManyTimes,
  // Of the writer.
  kEndlessPieces,
  kEndlessSamePiece,
  kEmptyPieces,
  kFarPiece,
  kPieceOverTheEnd,
  kLongPiece,
  kOtherCodec,
  kManyCodecs,
};

}  // namespace tessera
