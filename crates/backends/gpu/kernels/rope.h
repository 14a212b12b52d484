// Angles of rotary embedding in single precision. Frequencies are turns, each the sum of two
// floats, so that turns of late positions still have all digits behind the point.

FUNCTION float rope_angle(int position, float high, float low) {
    const float whole = (float)position * high;
    const float part = fma((float)position, high, -whole) + (float)position * low;
    return 6.28318530717958648f * ((whole - rint(whole)) + part);
}

// The same for a frequency divided by `factor`.
FUNCTION float rope_angle_divided(int position, float high, float low, float factor) {
    const float quotient = high / factor;
    return rope_angle(position, quotient, (fma(-quotient, factor, high) + low) / factor);
}
