//! Harbor's environments on other machines, and what each wants to be let in: from the sources of Harbor
//! 0.21 and 0.26. Later versions are asked (`harbor environment list`) before a name is called unknown.

use crate::harbor::run_config::HarborVersion;

/// An environment.
#[derive(Debug, Clone, Copy)]
pub struct Cloud {
    /// Its name, as `-e` takes it; also of the extra that is to be installed with Harbor.
    pub name: &'static str,
    /// Sets of variables, one of which has to be there in full; empty where it is not known by variables
    /// whether one is logged in.
    pub keys: &'static [&'static [&'static str]],
    /// Files in the home directory that do as well.
    pub files: &'static [&'static str],
    /// The versions that have it: 0.21, 0.26.
    pub of: (bool, bool),
}

const BOTH: (bool, bool) = (true, true);
const NEW: (bool, bool) = (false, true);
const OLD: (bool, bool) = (true, false);

const fn cloud(
    name: &'static str,
    keys: &'static [&'static [&'static str]],
    files: &'static [&'static str],
    of: (bool, bool),
) -> Cloud {
    Cloud { name, keys, files, of }
}

/// All that are not this machine's own containers.
pub const CLOUDS: [Cloud; 36] = [
    cloud("ack", &[&["KUBECONFIG"]], &[".kube/config"], BOTH),
    cloud("aca-sandbox", &[], &[], NEW),
    cloud("beam", &[&["BEAM_TOKEN"]], &[".beam/config.ini"], BOTH),
    cloud("blaxel", &[&["BL_API_KEY", "BL_WORKSPACE"]], &[".blaxel"], BOTH),
    cloud("boxd", &[&["BOXD_API_KEY"], &["BOXD_TOKEN"]], &[], NEW),
    cloud("cua-cloud", &[&["CUA_CLIENT_ID", "CUA_CLIENT_SECRET"]], &[], BOTH),
    cloud("cwsandbox", &[&["CWSANDBOX_API_KEY"]], &[], OLD),
    cloud("cwsandbox", &[], &[], NEW),
    cloud("daytona", &[&["DAYTONA_API_KEY"], &["DAYTONA_JWT_TOKEN", "DAYTONA_ORGANIZATION_ID"]], &[], BOTH),
    cloud("e2b", &[&["E2B_API_KEY"]], &[], BOTH),
    cloud("ec2", &[&["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"], &["AWS_PROFILE"]], &[".aws/credentials"], BOTH),
    cloud("gke", &[&["GCP_PROJECT"], &["GOOGLE_CLOUD_PROJECT"]], &[".config/gcloud"], BOTH),
    cloud("hf-sandbox", &[&["HF_TOKEN"]], &[".cache/huggingface/token"], BOTH),
    cloud("hyperbrowser", &[&["HYPERBROWSER_API_KEY"]], &[], NEW),
    cloud("islo", &[&["ISLO_API_KEY"]], &[], BOTH),
    cloud("kernel", &[&["KERNEL_API_KEY"]], &[], NEW),
    cloud("langsmith", &[&["LANGSMITH_API_KEY"], &["LANGCHAIN_API_KEY"]], &[".langsmith"], BOTH),
    cloud("modal", &[&["MODAL_TOKEN_ID", "MODAL_TOKEN_SECRET"]], &[".modal.toml"], BOTH),
    cloud("mosaic", &[&["MOSAIC_REGISTRY_USERNAME", "MOSAIC_REGISTRY_PASSWORD"]], &[], NEW),
    cloud("novita", &[&["NOVITA_API_KEY"]], &[], BOTH),
    cloud("opensandbox", &[&["OPENSANDBOX_DOMAIN", "OPENSANDBOX_API_KEY"]], &[], BOTH),
    cloud("openshift", &[&["KUBECONFIG"]], &[".kube/config"], BOTH),
    cloud("prime", &[], &[], NEW),
    cloud("runloop", &[&["RUNLOOP_API_KEY"]], &[], BOTH),
    cloud("runta", &[&["RUNTA_TOKEN"], &["RUNTA_CONFIG"]], &[], NEW),
    cloud("sail", &[], &[], NEW),
    cloud("sbx", &[&["SBX_TOKEN"]], &[], NEW),
    cloud("skypilot", &[&["SKYPILOT_API_SERVER_ENDPOINT"]], &[], BOTH),
    cloud("smol", &[], &[], NEW),
    cloud("snowflake", &[], &[], NEW),
    cloud("superserve", &[&["SUPERSERVE_API_KEY"]], &[], NEW),
    cloud("tensorlake", &[&["TENSORLAKE_API_KEY"]], &[], BOTH),
    cloud("use-computer", &[&["USE_COMPUTER_API_KEY"]], &[], BOTH),
    cloud("vercel", &[&["VERCEL_TOKEN"], &["VERCEL_OIDC_TOKEN"]], &[], NEW),
    cloud("wandb", &[&["WANDB_API_KEY"]], &[".netrc"], OLD),
    cloud("singularity", &[], &[], BOTH),
];

/// This machine's own: name, and the versions that have it.
pub const LOCAL: [(&str, (bool, bool)); 4] =
    [("docker", BOTH), ("podman", NEW), ("kata", NEW), ("apple-container", BOTH)];

impl Cloud {
    /// By its name, in the form that a version has it.
    pub fn of(name: &str, version: Option<HarborVersion>) -> Option<&'static Cloud> {
        CLOUDS.iter().find(|c| c.name == name && has(c.of, version))
    }

    /// Whether one is let in, as far as that can be told: `set` knows variables, `there` files in the home
    /// directory.
    pub fn open(&self, set: impl Fn(&str) -> bool, there: impl Fn(&str) -> bool) -> bool {
        self.keys.is_empty()
            || self.keys.iter().any(|all| all.iter().all(|k| set(k)))
            || self.files.iter().any(|f| there(f))
    }

    /// What would let one in, in words.
    pub fn wanted(&self) -> String {
        let keys = self.keys.iter().map(|all| all.join(" and "));
        let files = self.files.iter().map(|file| format!("~/{file}"));
        keys.chain(files).collect::<Vec<_>>().join(", or ")
    }
}

fn has(of: (bool, bool), version: Option<HarborVersion>) -> bool {
    match version {
        Some(HarborVersion::V0_21) => of.0,
        _ => of.1,
    }
}

/// Whether a version has an environment of this name, by the lists above.
pub fn known(name: &str, version: Option<HarborVersion>) -> bool {
    Cloud::of(name, version).is_some() || LOCAL.iter().any(|(local, of)| *local == name && has(*of, version))
}

/// Whether it is one of this machine's own containers, with files that can be mounted.
pub fn local(name: &str) -> bool {
    LOCAL.iter().any(|(local, _)| *local == name)
}
