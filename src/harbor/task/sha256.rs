//! SHA-256 as Harbor writes it: in lower-case hexadecimal digits.

use sha2::Digest;

/// A running hash.
pub(super) struct Sha256(sha2::Sha256);

impl Sha256 {
    pub(super) fn new() -> Sha256 {
        Sha256(sha2::Sha256::new())
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The hash in 64 lower-case hexadecimal digits.
    pub(super) fn hex(self) -> String {
        self.0.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The hash of a whole text.
    pub(super) fn hex_of(bytes: &[u8]) -> String {
        let mut hash = Sha256::new();
        hash.update(bytes);
        hash.hex()
    }
}
