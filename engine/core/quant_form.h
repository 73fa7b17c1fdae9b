// What the numbers of a quantised format are made of. Plain data, for readers of files and for
// kernels: a number is scale * (quant - middle) + offset.
#pragma once

namespace tessera {

struct QuantForm {
  int bits;      // of a quant
  int middle;    // the quant of zero, less the offset
  int groups;    // in a block of 32 numbers, each with its scale: 1 or 2
  bool offsets;  // groups have offsets
  bool factors;  // a block has 256 numbers; scales and offsets are its two times small integers
};

inline constexpr QuantForm kQ4_0Form{4, 8, 1, false, false};
inline constexpr QuantForm kQ4_1Form{4, 0, 1, true, false};
inline constexpr QuantForm kQ5_0Form{5, 16, 1, false, false};
inline constexpr QuantForm kQ5_1Form{5, 0, 1, true, false};
inline constexpr QuantForm kQ2KForm{2, 0, 2, true, true};
inline constexpr QuantForm kQ3KForm{3, 4, 2, false, true};
inline constexpr QuantForm kQ4KForm{4, 0, 1, true, true};
inline constexpr QuantForm kQ5KForm{5, 0, 1, true, true};
inline constexpr QuantForm kQ6KForm{6, 32, 2, false, true};

}  // namespace tessera
