from pipeline.redaction import checks


def test_check_digits() -> None:
    cases = (
        (checks.luhn, "4111111111111111", "4111111111111112"),
        (checks.iban, "DE89370400440532013000", "DE88370400440532013000"),
        (checks.iban, "GB29NWBK60161331926819", "GB29NWBK6016133192681"),
        (checks.cpf, "52998224725", "52998224726"),
        (checks.cpf, "39053344705", "11111111111"),
        (checks.nir, "255081416802538", "255081416802539"),
        (checks.dni, "12345678Z", "12345678A"),
        (checks.dni, "X1234567L", "X1234567M"),
        (checks.nino, "AB123456C", "AB123456E"),
    )
    for check, right, wrong in cases:
        assert check(right) and not check(wrong), check.__name__
