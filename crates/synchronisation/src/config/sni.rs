//! The settings of SNIs.

use resources::naming::sni::Formats;
use settings::section;

section! {
    /// Server names of destinations in connections between zones.
    pub struct Sni {
        /// The formats of the SNIs that this control plane writes into its MeshServices, MeshExternalServices and
        /// MeshMultiZoneServices: clients dial the first, servers accept all. To switch, list both with the new
        /// one first, and leave out the old one when nothing dials it any more. A port whose KRI cannot be a host
        /// name keeps `hashed`.
        formats: Formats = Formats::default(), "formats", "KUMA_MULTIZONE_SNI_FORMATS";
    }
}
