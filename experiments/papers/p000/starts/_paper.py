"""Tables of Schultheis and Babbar, "Speeding-up one-versus-all training for extreme classification via
mean-separating initialization", 2022. Times are minutes; a gap in the paper is None."""

# set, setting: Zero, Bias, OvAP, MSI; 128 threads
TABLE_1 = {
    ("Eurlex-4k", "tf-idf"): (0.1, 0.1, 0.1, 0.1, 1.8),
    ("Wiki10-31k", "tf-idf"): (3.2, 3.1, 2.6, 1.9, 1.6),
    ("Amazoncat-13k", "tf-idf"): (19.7, 11.5, 12.6, 5.6, 3.5),
    ("Amazoncat-14k", "tf-idf"): (78.8, 34.0, 48.0, 23.2, 3.4),
    ("WikiTitles-500k", "tf-idf"): (320.6, 187.8, 301.8, 71.1, 4.5),
    ("Amazon-670k", "tf-idf"): (409.1, 337.3, 259.4, 81.3, 5.0),
    ("Delicious-200k", "tf-idf"): (470.6, 416.2, 337.5, 283.8, 1.7),
    ("WikiLSHTC-350k", "tf-idf"): (1111.0, 479.5, 634.8, 310.5, 3.6),
    ("Amazon-3M", "tf-idf"): (None, None, None, 1360.1, None),
    ("Eurlex-4k", "dense"): (0.1, 0.1, 0.1, 0.0, 2.7),
    ("Amazon-670k", "dense"): (782.4, 376.5, 489.1, 321.2, 2.4),
}

# set: Zero, Bias, OvAP, MSI, Zero / MSI
TABLE_2 = {
    "Eurlex-4k": (0.2, 0.2, 0.1, 0.2, 1.2),
    "Wiki10-31k": (4.1, 3.4, 2.4, 3.5, 1.2),
    "Amazoncat-13k": (35.6, 28.2, 24.8, 28.2, 1.4),
    "Amazoncat-14k": (160.1, 127.6, 111.3, 125.3, 1.3),
    "WikiTitles-500k": (366.8, 311.0, 270.4, 315.7, 1.2),
    "Amazon-670k": (633.6, 522.8, 420.4, 525.5, 1.2),
}

# set: Zero, OvAP++ and their ratio in the code of Fang et al.; Zero, MSI and their ratio
TABLE_3 = {
    "Eurlex-4k": (0.3, 0.2, 1.7, 0.3, 0.1, 2.5),
    "Wiki10-31k": (9.7, 5.7, 1.7, 7.3, 3.1, 2.4),
    "Amazoncat-13k": (61.7, 30.6, 2.0, 39.7, 10.5, 3.8),
    "Amazoncat-14k": (208.0, 94.8, 2.2, 145.7, 39.2, 3.7),
    "WikiTitles-500k": (521.9, 236.4, 2.2, 535.2, 114.9, 4.7),
    "Amazon-670k": (1310.4, 418.1, 3.1, 708.2, 172.1, 4.1),
}

# set, setting, start: P@1, P@3, P@5, precision, recall, minutes
TABLE_4 = {
    ("Eurlex-4k", "tf-idf", "Zero"): (83.8, 70.8, 59.1, 79.2, 38.5, 0.15),
    ("Eurlex-4k", "tf-idf", "Bias"): (83.7, 70.8, 59.1, 79.2, 38.4, 0.13),
    ("Eurlex-4k", "tf-idf", "MSI"): (83.7, 70.8, 59.0, 79.2, 38.4, 0.08),
    ("Eurlex-4k", "tf-idf", "OvAP"): (84.0, 70.7, 59.1, 79.2, 38.4, 0.10),
    ("Wiki10-31k", "tf-idf", "Zero"): (84.1, 74.7, 65.9, 75.8, 13.0, 3.20),
    ("Wiki10-31k", "tf-idf", "Bias"): (84.1, 74.6, 65.9, 75.7, 13.0, 3.10),
    ("Wiki10-31k", "tf-idf", "MSI"): (84.3, 74.7, 65.9, 75.8, 13.0, 1.95),
    ("Wiki10-31k", "tf-idf", "OvAP"): (84.1, 74.7, 65.9, 75.7, 13.0, 2.60),
    ("Amazoncat-13k", "tf-idf", "Zero"): (93.2, 78.9, 64.2, 84.9, 58.2, 19.75),
    ("Amazoncat-13k", "tf-idf", "Bias"): (93.2, 78.9, 64.2, 84.9, 58.1, 11.50),
    ("Amazoncat-13k", "tf-idf", "MSI"): (93.0, 78.9, 64.1, 84.9, 58.0, 5.60),
    ("Amazoncat-13k", "tf-idf", "OvAP"): (93.2, 78.9, 64.2, 85.0, 58.1, 12.58),
    ("Amazoncat-14k", "tf-idf", "Zero"): (89.7, 69.5, 54.9, 87.3, 66.1, 78.81),
    ("Amazoncat-14k", "tf-idf", "Bias"): (89.6, 69.5, 54.9, 87.3, 66.0, 34.02),
    ("Amazoncat-14k", "tf-idf", "MSI"): (89.5, 69.5, 54.9, 87.3, 65.8, 23.25),
    ("Amazoncat-14k", "tf-idf", "OvAP"): (89.7, 69.5, 54.9, 87.3, 66.2, 48.03),
    ("Amazon-670k", "tf-idf", "Zero"): (45.7, 40.7, 37.2, 82.0, 17.6, 409.05),
    ("Amazon-670k", "tf-idf", "Bias"): (45.7, 40.7, 37.2, 82.0, 17.6, 337.30),
    ("Amazon-670k", "tf-idf", "MSI"): (45.7, 40.7, 37.2, 82.0, 17.6, 81.31),
    ("Amazon-670k", "tf-idf", "OvAP"): (45.6, 40.7, 37.2, 82.0, 17.6, 259.42),
    ("WikiLSHTC", "tf-idf", "Zero"): (64.4, 42.6, 31.7, 84.7, 19.2, 931.58),
    ("WikiLSHTC", "tf-idf", "Bias"): (64.4, 42.6, 31.6, 84.7, 19.2, 803.45),
    ("WikiLSHTC", "tf-idf", "MSI"): (64.4, 42.7, 31.7, 84.6, 19.2, 286.79),
    ("WikiLSHTC", "tf-idf", "OvAP"): (64.4, 42.6, 31.7, 84.7, 19.2, 634.76),
    ("Delicious-200k", "tf-idf", "Zero"): (46.4, 39.3, 35.7, 29.2, 1.7, 470.58),
    ("Delicious-200k", "tf-idf", "Bias"): (46.4, 39.3, 35.7, 29.5, 1.7, 416.20),
    ("Delicious-200k", "tf-idf", "MSI"): (46.2, 39.1, 35.6, 29.0, 1.7, 283.82),
    ("Delicious-200k", "tf-idf", "OvAP"): (46.4, 39.3, 46.4, 29.2, 1.7, 337.47),
    ("WikiTitles-500k", "tf-idf", "Zero"): (40.1, 21.4, 15.0, 68.0, 5.6, 320.59),
    ("WikiTitles-500k", "tf-idf", "Bias"): (40.1, 21.4, 15.0, 68.2, 5.6, 187.78),
    ("WikiTitles-500k", "tf-idf", "MSI"): (40.1, 21.4, 15.0, 68.2, 5.6, 71.13),
    ("WikiTitles-500k", "tf-idf", "OvAP"): (40.1, 21.4, 15.0, 68.1, 5.6, 301.80),
    ("Amazon-670k", "dense", "Zero"): (35.6, 32.1, 29.4, 74.6, 23.0, 782.39),
    ("Amazon-670k", "dense", "Bias"): (34.2, 31.0, 28.5, 69.4, 22.4, 376.02),
    ("Amazon-670k", "dense", "MSI"): (35.6, 32.1, 29.5, 73.5, 23.4, 321.19),
    ("Amazon-670k", "dense", "OvAP"): (35.6, 32.0, 29.4, 74.5, 23.0, 489.15),
    ("Eurlex-4k", "dense", "Zero"): (77.2, 63.4, 51.3, 72.8, 36.3, 0.13),
    ("Eurlex-4k", "dense", "Bias"): (75.3, 62.1, 50.2, 76.0, 26.4, 0.07),
    ("Eurlex-4k", "dense", "MSI"): (76.6, 63.0, 51.4, 67.7, 39.1, 0.05),
    ("Eurlex-4k", "dense", "OvAP"): (76.9, 63.5, 51.4, 72.5, 36.4, 0.07),
    ("Amazon-3M", "tf-idf", "MSI"): (47.8, 45.0, 42.9, 67.1, 14.0, 1360.10),
}
