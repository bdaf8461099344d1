//! Uids of objects.

/// Returns the random uuid (version 4) of 128 random bits.
pub fn format_uid(high: u64, low: u64) -> String {
    let high = (high & !0xf000) | 0x4000;
    let low = (low & !(0b11 << 62)) | (0b10 << 62);
    let bits = u128::from(high) << 64 | u128::from(low);
    let mut text = String::with_capacity(36);
    // Each request gets one, and formatting takes twenty times as long.
    for digit in 0..32 {
        if [8, 12, 16, 20].contains(&digit) {
            text.push('-');
        }
        let value = (bits >> (124 - 4 * digit)) as usize & 0xf;
        text.push(char::from(b"0123456789abcdef"[value]));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uids_are_version_4() {
        assert_eq!(format_uid(u64::MAX, u64::MAX), "ffffffff-ffff-4fff-bfff-ffffffffffff");
        assert_eq!(format_uid(0x0123_4567_89ab_cdef, 0x0123_4567_89ab_cdef), "01234567-89ab-4def-8123-456789abcdef");
    }
}
