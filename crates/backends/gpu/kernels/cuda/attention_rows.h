// Brings COUNT rows of D numbers from `first` on, up to `end`, to where products read them; the rest become 0. All of a
// warpgroup does it. Numbers that are sums of TERMS_OF others lie `term` elements apart, and in local memory row behind row.
template <uint COUNT, uint TERMS_OF = 1>
FUNCTION void bring(uint to, const STORAGE(C)* from, uint stride, uint first, uint end,
                    ulong term = 0) {
    const uint thread = LANE % 128, piece = thread % (D / 8), line = thread / (D / 8);
    const uint lines = 128 / (D / 8);
    to += piece / 8 * (COUNT * 128) + line * 128 + (piece % 8 ^ line % 8) * 16;
    const STORAGE(C)* row = from + (first + line) * (ulong)stride + piece * 8;
    UNROLL for (uint i = 0; i < COUNT / lines; i++) {
        const bool is_there = first + line + i * lines < end;
        UNROLL for (uint n = 0; n < TERMS_OF; n++) {
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                         :: "r"(to + n * (COUNT * D * 2) + i * lines * 128),
                            "l"(is_there ? row + n * term : from), "r"(is_there ? 16 : 0)
                         : "memory");
        }
        row += lines * (ulong)stride;
    }
}

