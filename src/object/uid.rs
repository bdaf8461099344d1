//! Uids of objects.

/// Returns the random uuid (version 4) of 128 random bits.
pub fn format_uid(high: u64, low: u64) -> String {
    let high = (high & !0xf000) | 0x4000;
    let low = (low & !(0b11 << 62)) | (0b10 << 62);
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xffff,
        low >> 48,
        low & 0xffff_ffff_ffff
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uids_are_version_4() {
        assert_eq!(format_uid(u64::MAX, u64::MAX), "ffffffff-ffff-4fff-bfff-ffffffffffff");
    }
}
