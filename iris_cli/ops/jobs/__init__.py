"""Operations on jobs: submit, cancel, retry, change."""
