// What discrete Fourier transforms are made of: complex numbers, and transforms of few of them.
//
// Z: the complex dtype that is computed with, R: that of its parts.

typedef COMPUTE(Z) pair;
#define MAKE PASTE(make_, Z)
#define ADD PASTE(add_, Z)
#define SUB PASTE(sub_, Z)
#define SCALE(a, factor) MAKE((a).x * (COMPUTE(R))(factor), (a).y * (COMPUTE(R))(factor))
// Times -i.
#define TURNED(a) MAKE((a).y, -(a).x)

FUNCTION pair product(pair a, pair b) {
    return MAKE(
        MULTIPLY_ADD(a.x, b.x, -(a.y * b.y)), MULTIPLY_ADD(a.x, b.y, a.y * b.x)
    );
}

// Places that lie 2, 4, 8 apart are in different banks.
#define PADDED(i) ((i) + (i) / 16)

// exp(-2πi a / n), for a < n.
FUNCTION pair turn(uint a, uint n) {
    const COMPUTE(R) part = a > n / 2 ? -(COMPUTE(R))(n - a) : (COMPUTE(R))a;
    const COMPUTE(R) angle = 2 * part / (COMPUTE(R))n;
    return MAKE(cospi(angle), -sinpi(angle));
}

#define DFT_2(u) \
    { \
        const pair other_ = u[1]; \
        u[1] = SUB(u[0], other_); \
        u[0] = ADD(u[0], other_); \
    }

#define DFT_3(u) \
    { \
        const pair sum_ = ADD(u[1], u[2]); \
        const pair side_ = SCALE(TURNED(SUB(u[1], u[2])), 0.86602540378443865); \
        const pair mean_ = SUB(u[0], SCALE(sum_, 0.5)); \
        u[0] = ADD(u[0], sum_); \
        u[1] = ADD(mean_, side_); \
        u[2] = SUB(mean_, side_); \
    }

#define DFT_4_OF(a, b, c, d) \
    { \
        const pair even_ = ADD(a, c), odd_ = ADD(b, d); \
        const pair even_rest_ = SUB(a, c), odd_rest_ = TURNED(SUB(b, d)); \
        a = ADD(even_, odd_); \
        b = ADD(even_rest_, odd_rest_); \
        c = SUB(even_, odd_); \
        d = SUB(even_rest_, odd_rest_); \
    }
#define DFT_4(u) DFT_4_OF(u[0], u[1], u[2], u[3])

#define DFT_5(u) \
    { \
        const pair sum_ = ADD(u[1], u[4]), sum2_ = ADD(u[2], u[3]); \
        const pair rest_ = TURNED(SUB(u[1], u[4])), rest2_ = TURNED(SUB(u[2], u[3])); \
        const pair near_ = ADD(SCALE(sum_, 0.30901699437494742), SCALE(sum2_, -0.80901699437494742)); \
        const pair far_ = ADD(SCALE(sum_, -0.80901699437494742), SCALE(sum2_, 0.30901699437494742)); \
        const pair side_ = ADD(SCALE(rest_, 0.95105651629515357), SCALE(rest2_, 0.58778525229247313)); \
        const pair side2_ = SUB(SCALE(rest_, 0.58778525229247313), SCALE(rest2_, 0.95105651629515357)); \
        const pair mean_ = ADD(u[0], near_), mean2_ = ADD(u[0], far_); \
        u[0] = ADD(u[0], ADD(sum_, sum2_)); \
        u[1] = ADD(mean_, side_); \
        u[2] = ADD(mean2_, side2_); \
        u[3] = SUB(mean2_, side2_); \
        u[4] = SUB(mean_, side_); \
    }

#define DFT_8(u) \
    { \
        DFT_4_OF(u[0], u[2], u[4], u[6]) \
        DFT_4_OF(u[1], u[3], u[5], u[7]) \
        const pair even1_ = u[2], even2_ = u[4], even3_ = u[6], odd0_ = u[1]; \
        const pair odd1_ = TURNED_1_8(u[3]); \
        const pair odd2_ = TURNED(u[5]); \
        const pair odd3_ = TURNED_3_8(u[7]); \
        u[4] = SUB(u[0], odd0_); \
        u[0] = ADD(u[0], odd0_); \
        u[1] = ADD(even1_, odd1_); \
        u[5] = SUB(even1_, odd1_); \
        u[2] = ADD(even2_, odd2_); \
        u[6] = SUB(even2_, odd2_); \
        u[3] = ADD(even3_, odd3_); \
        u[7] = SUB(even3_, odd3_); \
    }

// A product with exp(-πi / 4), and with its third power.
#define TURNED_1_8(a) SCALE(ADD(a, TURNED(a)), 0.70710678118654752)
#define TURNED_3_8(a) SCALE(SUB(TURNED(a), a), 0.70710678118654752)

// A product with exp(-πi / 8), whose parts are `c` and -`s`, or with its power that has them.
#define TURNED_BY(a, c, s) product(a, MAKE((COMPUTE(R))(c), -(COMPUTE(R))(s)))
#define COS_16 0.92387953251128674
#define SIN_16 0.38268343236508977

#define EXCHANGE(a, b) \
    { \
        const pair moved_ = a; \
        a = b; \
        b = moved_; \
    }

// Of 4 times 4 numbers.
#define DFT_16(u) \
    { \
        DFT_4_OF(u[0], u[4], u[8], u[12]) \
        DFT_4_OF(u[1], u[5], u[9], u[13]) \
        DFT_4_OF(u[2], u[6], u[10], u[14]) \
        DFT_4_OF(u[3], u[7], u[11], u[15]) \
        u[5] = TURNED_BY(u[5], COS_16, SIN_16); \
        u[6] = TURNED_1_8(u[6]); \
        u[7] = TURNED_BY(u[7], SIN_16, COS_16); \
        u[9] = TURNED_1_8(u[9]); \
        u[10] = TURNED(u[10]); \
        u[11] = TURNED_3_8(u[11]); \
        u[13] = TURNED_BY(u[13], SIN_16, COS_16); \
        u[14] = TURNED_3_8(u[14]); \
        u[15] = TURNED_BY(u[15], -COS_16, -SIN_16); \
        DFT_4_OF(u[0], u[1], u[2], u[3]) \
        DFT_4_OF(u[4], u[5], u[6], u[7]) \
        DFT_4_OF(u[8], u[9], u[10], u[11]) \
        DFT_4_OF(u[12], u[13], u[14], u[15]) \
        EXCHANGE(u[1], u[4]) \
        EXCHANGE(u[2], u[8]) \
        EXCHANGE(u[3], u[12]) \
        EXCHANGE(u[6], u[9]) \
        EXCHANGE(u[7], u[13]) \
        EXCHANGE(u[11], u[14]) \
    }

// Numbers `u` times the powers of exp(-2πi k / (done · N)), by which transforms of `done` numbers
// each become parts of one.
#define TURN_ALL(N, u, k, done) \
    { \
        pair powers[N]; \
        powers[1] = turn(k, (done) * N); \
        u[1] = product(u[1], powers[1]); \
        UNROLL \
        for (uint j = 2; j < N; j++) { \
            powers[j] = product(powers[j / 2], powers[j - j / 2]); \
            u[j] = product(u[j], powers[j]); \
        } \
    }
