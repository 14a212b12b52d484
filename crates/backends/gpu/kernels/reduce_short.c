// Short lines of what is computed of operands, combined: a team for each, of whose lanes each has VECTOR neighbours.
//
// A, Y: dtypes of what is combined, and of the results. COMBINE(a, b): how. START: what it begins with.
// BEGIN_LINE(line), LOAD_ELEMENTS(j): declare what there is to know of a line, and of VECTOR elements from `j` on.
// ELEMENT(name, e): declares element `e` of those. EPILOGUE: declares RESULT, what is stored of a combined `value`.

#ifndef EPILOGUE
#define EPILOGUE
#define RESULT value
#endif

KERNEL_BEGIN
    LOCAL_ARRAY(COMPUTE(A), shared, GROUP);
    const uint line = LINE;
    const bool exists = line < p.count;
    const uint own = exists ? line : 0;
    BEGIN_LINE(own)
    const uint j = MEMBER * VECTOR;
    LOAD_ELEMENTS(min(j, (uint)(p.len - VECTOR)))
    COMPUTE(A) value = START;
    if (j < p.len) {
        UNROLL
        for (uint e = 0; e < VECTOR; e++) {
            ELEMENT(element, e)
            value = COMBINE(value, element);
        }
    }
    TEAM_REDUCE(shared, value, COMBINE);
    if (exists && MEMBER == 0) {
        EPILOGUE
        STORE(Y, y, line, RESULT);
    }
KERNEL_END
