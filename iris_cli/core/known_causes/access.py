"""What SSH, git, cloud storage and other services say to those they don't let in."""

from __future__ import annotations

from iris_cli.core.known_causes.rule import Rule

# A rule takes six lines or so; the formatter would take up to fourteen.
# fmt: off
ACCESS = (
    Rule(name="ssh-host-key", source="https://errornotes.dev/en/errors/ansible/fix-ansible-git-module-host-key-verification-failed-when-cloning-via-ssh",
         says=("REMOTE HOST IDENTIFICATION HAS CHANGED", "Host key verification failed"),
         cause="ssh, or git over it, doesn't know the key of the host, or knows another one",
         fix="Where nobody can be asked, the key must be there before: put the published one into ~/.ssh/known_hosts "
             "of the worker, in --setup for instance; ssh-keygen -R HOST removes an old one."),
    Rule(name="ssh-too-many-keys", source="https://www.simplified.guide/ssh/too-many-authentication-failures-fix",
         says=("Too many authentication failures",),
         cause="ssh offered so many keys that the server gave up before the right one",
         fix="Name the one: IdentityFile and IdentitiesOnly yes for that host, in ~/.ssh/config."),
    Rule(name="ssh-refused", source="https://docs.github.com/en/authentication/troubleshooting-ssh/error-permission-denied-publickey",
         says=("Permission denied (publickey",),
         cause="the SSH server accepts none of the keys that it was offered",
         fix="Workers have none of your keys: forward none, but give the task its own by --secret; or clone over "
             "HTTPS with a token."),
    Rule(name="ssh-startups", source="https://man.openbsd.org/sshd_config#MaxStartups",
         says=("kex_exchange_identification: Connection closed by remote host",
               "ssh_exchange_identification: Connection closed by remote host", "Error reading SSH protocol banner",
               "Exceeded MaxStartups"),
         cause="the SSH server dropped the connection: too many were opened at a time",
         fix="sshd takes 10 at a time that are not logged in yet (MaxStartups 10:30:100). Let one rank connect for "
             "all, or one after the other; raise it for jump hosts."),
    Rule(name="git-password", source="https://github.com/appleboy/ssh-action/issues/136",
         says=("could not read Username for", "could not read Password for"),
         cause="git wanted a user name, and no terminal to type it",
         fix="The repository is private, or its name is wrong. Ship the code with --workdir, or give a token: "
             "--secret GIT_TOKEN and git clone https://x-access-token:$GIT_TOKEN@..."),
    Rule(name="gcp-credentials", source="https://docs.cloud.google.com/docs/authentication/application-default-credentials",
         says=("Your default credentials were not found", "Could not automatically determine credentials"),
         cause="the task has no Google credentials",
         fix="Create the VM with a service account, whose credentials every process on it gets; elsewhere --secret "
             "and GOOGLE_APPLICATION_CREDENTIALS."),
    Rule(name="gcs-access", source="https://github.com/googlecolab/colabtools/issues/1177",
         says=("does not have storage.*access to", "Provided scope(s) are not authorized"),
         cause="the service account of the VM may not use that bucket",
         fix="Give the account in the message the role roles/storage.objectUser on the bucket; a VM whose scopes "
             "leave storage out must be created again with --scopes=cloud-platform."),
    Rule(name="hf-rate", source="https://github.com/huggingface/huggingface_hub/issues/3312",
         says=("429 Client Error: Too Many Requests", "HTTP Error 429 thrown while requesting"),
         cause="all ranks together asked a server too often",
         fix="Let rank 0 alone download to a place that all can read, or copy it to a bucket once; pass a token, "
             "which has a higher limit."),
    Rule(name="hf-gated", source="https://github.com/huggingface/huggingface_hub/issues/1119",
         says=("GatedRepoError", "Cannot access gated repo"),
         cause="the model is gated, and the task has no token of an account that was let in",
         fix="Accept its conditions on the page of the model, then --secret HF_TOKEN."),
    Rule(name="wandb-key", source="https://github.com/fraunhoferhhi/Self-Organizing-Gaussians/issues/4",
         says=("api_key not configured (no-tty)",),
         cause="wandb has no API key, and no terminal to type it",
         fix="--secret WANDB_API_KEY; or --env WANDB_MODE=offline."),
    Rule(name="credentials-refused", source="https://www.rfc-editor.org/rfc/rfc9110#section-15.5.2",
         next="iris launch --again {job}",
         says=("HTTP Error 401", "401 Client Error: Unauthorized"),
         cause="a server did not accept the key or token that the program sent",
         fix="Is it the right one, and not expired? A --secret is read again at each start: correct it in this shell "
             "or in its file, then launch the job again."),
)
