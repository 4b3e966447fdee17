"""Numbers and money in figures and words, in five languages, by country."""

from pipeline.language.pack import pack
from pipeline.language.spoken.amounts import amounts

NUMBERS = """
en US | The total is $2,480.75 today. | 2480.75
en US | It's 0.375 percent. | 0.375
en US | one hundred and twenty thousand dollars | 120000
en US | two hundred fifty thousand | 250000
en US | a hundred and fifty bucks | 150
en US | about 1.5 million | 1500000
en US | half a million euros | 500000
en US | two and a half million | 2500000
en US | five dollars and fifty cents | 5.5
en US | 80 cents | 0.8
en US | It costs $1.250 in all. | 1250
en US | 1.250 liters | 1.25
en US | three point one four | 3.14
en US | 12,500 customers | 12500
en US | eighty six dollars | 86
en US | 1,2,3 | 1 2 3
en IN | 1,25,000 rupees | 125000
en US | two lakh rupees | 200000
en US | 15k a year | 15000
en US | four or five | 4 5
de DE | Das macht 2.480,75 Euro. | 2480.75
de DE | 0,375 Prozent | 0.375
de DE | 1.250 Kunden | 1250
de DE | 1,250 Liter | 1.25
de DE | 1,300 Euro | 1300
de DE | zweihundertfünfzigtausend Euro | 250000
de DE | zwölf Komma fünf Prozent | 12.5
de DE | fünf Euro fünfzig | 5.5
de DE | eine halbe Million | 500000
de DE | drei Millionen zweihunderttausend | 3200000
de CH | 1'250.50 Franken | 1250.5
es ES | Son 2.480,75 euros. | 2480.75
es MX | Son 2,480.75 pesos. | 2480.75
es MX | 1,250 piezas | 1250
es ES | doscientos cincuenta mil euros | 250000
es ES | tres millones y medio | 3500000
es ES | medio millón de euros | 500000
es ES | doce coma cinco por ciento | 12.5
es ES | cinco euros con ochenta | 5 80
fr FR | Ça fait 2 480,75 euros. | 2480.75
fr FR | deux cent cinquante mille euros | 250000
fr FR | douze virgule cinq pour cent | 12.5
fr FR | un million et demi | 1500000
fr FR | cinq euros cinquante | 5.5
fr FR | 12,5 % | 12.5
pt BR | São R$ 2.480,75. | 2480.75
pt BR | duzentos e cinquenta mil reais | 250000
pt BR | dois milhões e meio | 2500000
pt BR | doze vírgula cinco por cento | 12.5
pt BR | cinco reais e cinquenta centavos | 5.5
pt BR | 1.250 clientes | 1250
"""


def test_a_number_has_its_value_in_figures_and_in_words(subtests) -> None:
    for line in NUMBERS.strip().splitlines():
        locale, text, expected = (part.strip() for part in line.split("|"))
        with subtests.test(line):
            values = [amount.value for amount in amounts(text, pack(*locale.split()))]
            assert values == [float(value) for value in expected.split()]


def test_an_amount_names_its_place_and_whether_it_is_money() -> None:
    [price, share] = amounts("It is 1,200 euros, not 12 percent.", pack("en", "US"))
    assert (price.money, price.first, price.last) == (True, 6, 11)
    assert (share.money, share.value) == (False, 12)


def test_a_language_without_a_pack_has_numbers_in_figures() -> None:
    assert [amount.value for amount in amounts("12 tai 1 250", pack("fi"))] == [12, 1250]
