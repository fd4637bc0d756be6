from succinct.keys import KeyTable

class Keys:
    def __init__(self, table: KeyTable) -> None: ...
