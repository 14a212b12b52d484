// The largest element of a line and the sum of exponentials of what each is more than that, for a whole team, in one
// pass. Lines begin at `x_start`; where VECTOR is more than 1, they lie without gaps and begin at multiples of 16 bytes, and
// their lengths are multiples of VECTOR.
//
// EXP: the exponential function, as precise as elements are. A lane's sum is of what its elements are more than the largest of them so far, and grows with it. What is infinite or no
// number makes the sum no number.

#define FOR_PIECES(first) for (uint first = MEMBER * VECTOR; first < p.len; first += p.team * VECTOR)

#if VECTOR > 1
#define SUM_EXPONENTIALS(T, largest, sum) \
    FOR_PIECES(first_) { \
        uint words_[4]; \
        LOAD_4_WORDS(words_, x, (x_start + first_) / VECTOR) \
        T values_[VECTOR], most_ = largest; \
        UNROLL \
        for (uint e_ = 0; e_ < VECTOR; e_++) { \
            values_[e_] = PART(X, words_, e_); \
            most_ = values_[e_] > most_ ? values_[e_] : most_; \
        } \
        sum *= EXP(largest - most_); \
        UNROLL \
        for (uint e_ = 0; e_ < VECTOR; e_++) sum += EXP(values_[e_] - most_); \
        largest = most_; \
    }
#else
#define SUM_EXPONENTIALS(T, largest, sum) \
    FOR_PIECES(j_) { \
        const T v_ = LOAD(X, x, x_start + j_ * p.x_step); \
        if (v_ > largest) { \
            sum *= EXP(largest - v_); \
            largest = v_; \
        } \
        sum += EXP(v_ - largest); \
    }
#endif

#define LOG_SUM(T, shared, largest, sum) \
    T largest = LOWEST, sum = 0; \
    SUM_EXPONENTIALS(T, largest, sum) \
    { \
        T most_ = largest; \
        TEAM_REDUCE(shared, most_, MAX_OR_NAN); \
        sum *= EXP(largest - most_); \
        largest = most_; \
    } \
    TEAM_REDUCE(shared, sum, PLUS);
